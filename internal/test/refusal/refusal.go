// Package refusal checks that every exported call of a package refuses bad arguments with
// errors of the form that package ipalloc documents.
package refusal

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// Row is a call with arguments that it must refuse, or in a state that makes it fail.
type Row struct {
	Call  string // such as "New" or "Set.Occupy"
	What  string // what is wrong with the call, in a word or two
	Err   error  // what the call returned
	Is    error  // the one sentinel that it must match; nil for a call that never fails
	Op    string
	Field string // with ErrInvalid: the argument at fault
}

var sentinels = []error{
	ipalloc.ErrInvalid, ipalloc.ErrFull, ipalloc.ErrCooling, ipalloc.ErrOccupied, ipalloc.ErrNotHeld, ipalloc.ErrOutOfRange,
	ipalloc.ErrReserved, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse,
	ipalloc.ErrMismatch, ipalloc.ErrVersion, ipalloc.ErrReplaced, ipalloc.ErrLimit, ipalloc.ErrConflict, ipalloc.ErrUnknownOutcome, ipalloc.ErrCorrupt, ipalloc.ErrClosed,
}

// Check fails the test for each row whose error has another form than documented. The
// error must be or wrap an *ipalloc.Error of the package and the call, and match one
// sentinel. With ErrInvalid it must name the field. Its text must be one line that names
// the package and the call once. It also fails for each exported call of the package in
// the current directory that returns an error and has no row.
func Check(t *testing.T, pkg string, rows []Row) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Call] = true
		for _, fault := range faults(pkg, r) {
			t.Errorf("%s, %s: %s: %v", r.Call, r.What, fault, r.Err)
		}
	}
	calls, err := callsIn(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if !seen[call] {
			t.Errorf("%s has no row", call)
		}
	}
	for call := range seen {
		if !slices.Contains(calls, call) {
			t.Errorf("there is no call %s that returns an error", call)
		}
	}
}

func faults(pkg string, r Row) (all []string) {
	if r.Is == nil {
		if r.Err != nil {
			all = append(all, "an error")
		}
		return all
	}
	var e *ipalloc.Error
	switch {
	case r.Err == nil:
		return []string{"no error"}
	case !errors.As(r.Err, &e):
		return []string{"no *ipalloc.Error"}
	}
	for _, s := range sentinels {
		if is, want := errors.Is(r.Err, s), errors.Is(s, r.Is); is != want {
			all = append(all, "matches "+s.Error()+" or does not, which is wrong")
		}
	}
	text := r.Err.Error()
	head := pkg + ": " + r.Op
	switch {
	case e.Package != pkg || e.Op != r.Op:
		all = append(all, "Package "+e.Package+", Op "+e.Op+", want "+head)
	case !strings.HasPrefix(text, head) || strings.Count(" "+text, " "+pkg+": ") != 1:
		all = append(all, "the text does not say "+head+" once")
	}
	if strings.Contains(text, "\n") {
		all = append(all, "several lines")
	}
	if e.Field != r.Field || r.Is == ipalloc.ErrInvalid && r.Field == "" {
		all = append(all, "Field "+e.Field+", want "+r.Field)
	}
	return all
}

// callsIn lists the exported functions and methods of a package whose last result is an
// error.
func callsIn(dir string) (calls []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || !fails(fn.Type) {
				continue
			}
			if name, exported := receiver(fn.Recv); exported {
				calls = append(calls, name+fn.Name.Name)
			}
		}
	}
	return calls, nil
}

func fails(f *ast.FuncType) bool {
	if f.Results == nil {
		return false
	}
	id, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	return ok && id.Name == "error"
}

// receiver returns the name of a receiver's type with a dot, "" for a function.
func receiver(r *ast.FieldList) (name string, exported bool) {
	if r == nil {
		return "", true
	}
	x := r.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.Ident:
			return y.Name + ".", y.IsExported()
		default:
			return "", false
		}
	}
}

// Words returns the name of a call in words, which is its Op: "assign IP" of "Engine.AssignIP".
func Words(call string) string {
	name := call[strings.LastIndex(call, ".")+1:]
	var words []string
	for _, w := range regexp.MustCompile(`IPs?|[A-Z][a-z]*`).FindAllString(name, -1) {
		if !strings.HasPrefix(w, "IP") {
			w = strings.ToLower(w)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}
