package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// sources are packages of a repository: p shows a type of an internal package and one of q.
var sources = []struct{ path, text string }{
	{root + "/p/internal/room", `package room
		type Shown struct { Name string; secret int }
		func (*Shown) Grow() error { return nil }
		type Shownest struct{}`},
	{root + "/q", `package q
		type Open struct { N int }`},
	{root + "/p", `package p
		import ("` + root + `/p/internal/room"; "` + root + `/q")
		const Limit = 7
		var Default *Shown
		type Shown = room.Shown
		type Open = q.Open
		type Pair[K comparable, V any] struct { Key K; value V }
		func (Pair[K, V]) Value() (v V) { return }
		type Verb interface { Do(room.Shown) q.Open; hidden() }
		func Make(s *room.Shown, o q.Open) (room.Shownest, error) { return room.Shownest{}, nil }
		func internal() {}
		type own int`},
}

func check(t *testing.T, change func(text string) string) []string {
	t.Helper()
	known := map[string]*types.Package{}
	var last *types.Package
	fset := token.NewFileSet()
	for _, s := range sources {
		file, err := parser.ParseFile(fset, s.path, change(s.text), 0)
		if err != nil {
			t.Fatal(err)
		}
		c := types.Config{Importer: importing(known)}
		if last, err = c.Check(s.path, fset, []*ast.File{file}, nil); err != nil {
			t.Fatal(err)
		}
		known[s.path] = last
	}
	return exported(last)
}

type importing map[string]*types.Package

func (m importing) Import(path string) (*types.Package, error) {
	if p := m[path]; p != nil {
		return p, nil
	}
	return importer.Default().Import(path)
}

func TestExported(t *testing.T) {
	got := check(t, func(s string) string { return s })
	want := []string{
		"const Limit untyped int = 7",
		"func Make(s *Shown, o Open) (p/internal/room.Shownest, error)",
		"method (*Shown) Grow() error",
		"method (Pair) Value() (v V)",
		"type Open = q.Open",
		"type Pair[K comparable, V any] struct",
		"type Pair[K comparable, V any] struct, Key K",
		"type Shown struct",
		"type Shown struct, Name string",
		"type Verb interface",
		"type Verb interface, Do(Shown) Open",
		"type Verb interface, hidden()",
		"var Default *Shown",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// What a user can see changes the list; what he cannot does not.
func TestChanges(t *testing.T) {
	before := check(t, func(s string) string { return s })
	for _, c := range []struct {
		old, new string
		seen     bool
	}{
		{"Name string", "Name int", true},        // a field behind an alias
		{"Grow() error", "Shrink() error", true}, // a method behind an alias
		{"Limit = 7", "Limit = 8", true},
		{"o q.Open)", "o Open)", false}, // the same type by another name
		{"secret int", "secret bool", false},
		{"value V", "other V", false},
		{"func internal()", "func other()", false},
	} {
		after := check(t, func(s string) string { return strings.Replace(s, c.old, c.new, 1) })
		if changed := !slices.Equal(before, after); changed != c.seen {
			t.Errorf("%q in place of %q: the list changed: %v, want %v", c.new, c.old, changed, c.seen)
		}
	}
}

func TestPlainResults(t *testing.T) {
	for line, want := range map[string]string{
		"func F(a int) (#rv1 []byte, #rv2 error)": "func F(a int) ([]byte, error)",
		"func F(a int) (#rv1 error)":              "func F(a int) error",
		"func F(a int) (n int, err error)":        "func F(a int) (n int, err error)",
	} {
		if got := plainResults(line); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}
