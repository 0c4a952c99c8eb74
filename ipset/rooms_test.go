package ipset

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms are the packages behind the engine, from the lowest up, each with those that it may import, as its doc.go says.
var rooms = map[string]string{
	"cause":   "",
	"record":  "",
	"pool":    "cause record",
	"txn":     "cause record pool",
	"assign":  "cause record pool txn",
	"query":   "cause record pool txn",
	"release": "cause record pool txn query",
	"check":   "cause record pool txn query release",
	"admin":   "cause record pool txn query release",
}

// A room imports only what stands below it, so none needs the engine or a room beside it.
func TestRoomsImportWhatStandsBelow(t *testing.T) {
	const here = "github.com/ipalloc/ipalloc/ipset"
	for room, below := range rooms {
		files, err := filepath.Glob(filepath.Join("internal", room, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", room, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				at, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				_, is := rooms[path.Base(at)]
				is = is && strings.HasPrefix(at, here+"/internal/")
				if at == here || is && !slices.Contains(strings.Fields(below), path.Base(at)) {
					t.Errorf("%s imports %s", name, at)
				}
			}
		}
	}
}
