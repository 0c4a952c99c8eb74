package transplant

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// edit returns the source of a file without the top-level functions, types and variables
// that Cut names, or Keep does not, a method as T.M, without the calls whose first argument is such a text (a table or a
// container of specs), and without the imports that nothing else uses. Imports named in
// the suite are replaced. It notes what it has left out in done; without done, Cut does not apply.
func (suite *Suite) edit(name string, source []byte, done map[string]bool) ([]byte, error) {
	cut := suite.Cut
	if done == nil {
		cut = nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		return nil, err
	}
	var kept []ast.Decl
	var left bool
	keep := slices.Clone(suite.Keep[name])
	for _, d := range file.Decls {
		n := declared(d)
		i := slices.Index(keep, n)
		if i >= 0 {
			keep = slices.Delete(keep, i, i+1)
		}
		if cut[n] != "" {
			done[n], left = true, true
		} else if suite.Keep[name] != nil && n != "" && i < 0 {
			left = true
		} else {
			kept = append(kept, d)
		}
	}
	if len(keep) > 0 {
		return nil, fmt.Errorf("nothing to keep: %q in %s", keep, name)
	}
	file.Decls = kept
	ast.Inspect(file, func(n ast.Node) bool {
		if b, ok := n.(*ast.BlockStmt); ok {
			b.List = slices.DeleteFunc(b.List, func(s ast.Stmt) bool {
				e, ok := s.(*ast.ExprStmt)
				if !ok || cut[text(e.X)] == "" {
					return false
				}
				done[text(e.X)], left = true, true
				return true
			})
		}
		return true
	})
	for _, i := range file.Imports {
		was, _ := strconv.Unquote(i.Path.Value)
		if to := suite.Import[was]; to != "" {
			i.Path.Value, left = strconv.Quote(to), true
		}
	}
	if !left {
		return source, nil
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.IMPORT {
			continue
		}
		var specs []ast.Spec
		for _, s := range g.Specs {
			if i := s.(*ast.ImportSpec); used[packageName(i)] || i.Name != nil && (i.Name.Name == "." || i.Name.Name == "_") {
				specs = append(specs, s)
			}
		}
		g.Specs = specs
	}
	var out bytes.Buffer
	if err := printer.Fprint(&out, set, file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out.Bytes(), nil
}

// declared returns the name that a declaration is cut by: that of a function, a method with
// its type, one type or variable, or the text that a declaration of specs begins with.
func declared(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		t := d.Recv.List[0].Type
		if p, ok := t.(*ast.StarExpr); ok {
			t = p.X
		}
		if t, ok := t.(*ast.Ident); ok {
			return t.Name + "." + d.Name.Name
		}
	case *ast.GenDecl:
		if len(d.Specs) != 1 {
			return ""
		}
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name
		case *ast.ValueSpec:
			if s.Names[0].Name == "_" && len(s.Values) == 1 {
				return text(s.Values[0])
			}
			return s.Names[0].Name
		}
	}
	return ""
}

// text returns the first argument of a call if it is a text.
func text(e ast.Expr) string {
	if c, ok := e.(*ast.CallExpr); ok && len(c.Args) > 0 {
		if l, ok := c.Args[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
			s, _ := strconv.Unquote(l.Value)
			return s
		}
	}
	return ""
}

// packageName guesses the name by which a file uses an import: the last element of its
// path that is not a version.
func packageName(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	p, _ := strconv.Unquote(i.Path.Value)
	return base(p)
}

// base returns the last element of an import path that is no version.
func base(p string) string {
	if v, ok := strings.CutPrefix(path.Base(p), "v"); ok && strings.Trim(v, "0123456789") == "" {
		p = path.Dir(p)
	}
	return path.Base(p)
}
