package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// repo is the repository as it lies on the disk: its modules, its tests, its documents.
type repo struct {
	top     string
	modules []string // directories, the longest first
	joined  map[string]bool
	tests   map[string][]string // directories by name of a Test or Fuzz function
	suites  map[string][]test   // tests by the suite that they call: storetest.TestStore
	fuzz    []test              // all fuzz targets
	texts   map[string]string   // Markdown files and package pages, as text in one line
	raw     map[string]string   // the same as they are
}

// test is a test function, or a fuzz target.
type test struct{ dir, name string }

// open reads the repository.
func open(top string) (*repo, error) {
	r := &repo{top: top, joined: map[string]bool{}, tests: map[string][]string{}, suites: map[string][]test{}, texts: map[string]string{}, raw: map[string]string{}}
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(name, top), string(filepath.Separator)))
		base := d.Name()
		switch {
		case d.IsDir() && (base == ".git" || base == "testdata" || base == "vendor"):
			return filepath.SkipDir
		case base == "go.mod":
			r.modules = append(r.modules, path.Dir(rel))
		case strings.HasSuffix(base, "_test.go"):
			return r.addTests(name, path.Dir(rel))
		case strings.HasSuffix(base, ".md") && base != "PROOF.md":
			data, err := os.ReadFile(name)
			r.raw[rel], r.texts[rel] = string(data), flat(string(data))
			return err
		case strings.HasSuffix(base, ".go"):
			return r.addPage(name, rel)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(r.modules, func(a, b string) int { return len(b) - len(a) })
	slices.SortFunc(r.fuzz, func(a, b test) int { return strings.Compare(a.dir+a.name, b.dir+b.name) })
	work, err := os.ReadFile(filepath.Join(top, "go.work"))
	if err != nil {
		return nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+\./?(\S*)`).FindAllStringSubmatch(string(work), -1) {
		r.joined[path.Clean(m[1])] = true
	}
	return r, nil
}

// flat is text in one line, as sentences are compared.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// addTests indexes the tests of a file.
func (r *repo) addTests(name, dir string) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil {
			continue
		}
		switch {
		case strings.HasPrefix(fn.Name.Name, "Fuzz"):
			r.fuzz = append(r.fuzz, test{dir, fn.Name.Name})
		case !strings.HasPrefix(fn.Name.Name, "Test"):
			continue
		}
		if !slices.Contains(r.tests[fn.Name.Name], dir) {
			r.tests[fn.Name.Name] = append(r.tests[fn.Name.Name], dir)
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && strings.HasPrefix(s.Sel.Name, "Test") {
					suite := x.Name + "." + s.Sel.Name
					r.suites[suite] = append(r.suites[suite], test{dir, fn.Name.Name})
				}
			}
			return true
		})
	}
	return nil
}

// addPage keeps the package page that a file has, if it has one.
func (r *repo) addPage(name, rel string) error {
	data, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(data), "\npackage ") {
		return err
	}
	f, err := parser.ParseFile(token.NewFileSet(), name, data, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	if f.Doc != nil {
		r.raw[rel] = f.Doc.Text()
		r.texts[rel] = flat(r.raw[rel])
	}
	return nil
}

// module returns the directory of the module that dir is in.
func (r *repo) module(dir string) string {
	for _, m := range r.modules {
		if dir == m || strings.HasPrefix(dir, m+"/") {
			return m
		}
	}
	return "."
}

// find returns where a test of this name is: below the given directory if it is there, else in the only place there is.
func (r *repo) find(name, below string) ([]test, error) {
	dirs := r.tests[name]
	var near []string
	for _, dir := range dirs {
		if dir == below || below == "." || strings.HasPrefix(dir, below+"/") {
			near = append(near, dir)
		}
	}
	if slices.Contains(near, below) {
		near = []string{below}
	}
	if len(near) > 0 {
		dirs = near
	}
	if len(dirs) != 1 {
		return nil, fmt.Errorf("%s is a test of %d packages: %v", name, len(dirs), dirs)
	}
	return []test{{dirs[0], name}}, nil
}
