package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// body finds the mutant of a function that does nothing: one with no result or with an
// error alone.
func (g *finder) body(fn *ast.FuncDecl) {
	with := "return"
	if r := fn.Type.Results; r != nil {
		if r.NumFields() != 1 || !g.isError(r.List[0].Type) {
			return
		}
		with = "return nil"
	}
	if len(fn.Body.List) == 0 {
		return
	}
	first := fn.Body.List[0]
	if _, ok := first.(*ast.ReturnStmt); ok {
		return // what errNil finds
	}
	at := g.offset(first.Pos())
	m := g.add(first, "body", with)
	m.edits = []edit{{at, at, "if mutant.On(@) { " + with + " }; ", opening, g.offset(fn.Body.End()) - at}}
}

// statements finds the mutants of a list of statements.
func (g *finder) statements(list []ast.Stmt, fn *ast.FuncType) {
	swapped := -1
	for i, s := range list {
		if i > swapped+1 && simple(list[i-1]) && simple(s) {
			swapped = i
			g.swap(list[i-1], s)
		}
		switch s := s.(type) {
		case *ast.ExprStmt:
			if c, ok := s.X.(*ast.CallExpr); ok && removable(c) {
				g.remove(s)
			}
		case *ast.DeferStmt:
			if removable(s.Call) {
				g.remove(s)
			}
		case *ast.IncDecStmt:
			g.remove(s)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !blank(s.Lhs) {
				g.remove(s)
			}
			g.assignment(s)
		case *ast.ReturnStmt:
			g.errNil(s, fn)
		case *ast.RangeStmt:
			g.once(s.Body)
		case *ast.ForStmt:
			if s.Cond != nil { // else what follows may be missing a return
				g.once(s.Body)
			}
		}
	}
}

// simple reports whether a statement declares nothing and goes on to the next one.
func simple(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		return ok && removable(c)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}

// swap finds the mutant in which b comes before a.
func (g *finder) swap(a, b ast.Stmt) {
	start, end := g.offset(a.Pos()), g.offset(b.End())
	with := g.text(b) + "; " + g.text(a)
	g.add(a, "swap", with).edits = []edit{
		{start, start, "if mutant.On(@) { " + with + " } else { ", opening, end - start},
		{end, end, " }", closing, end - start},
	}
}

// once finds the mutant of a loop that ends after its first round.
func (g *finder) once(body *ast.BlockStmt) {
	at := g.offset(body.Rbrace)
	g.add(body, "once", "{ ...; break }").edits = []edit{{at, at, "; if mutant.On(@) { break }; ", opening, 0}}
}

// never finds the mutant of a case of a select whose channel nothing comes from.
func (g *finder) never(c *ast.CommClause) {
	ast.Inspect(c.Comm, func(n ast.Node) bool {
		if u, ok := n.(*ast.UnaryExpr); ok && u.Op == token.ARROW {
			g.wrap(u.X, "never", "nil", "mutant.Zero(@, ", ")")
			return false
		}
		return true
	})
}

func (g *finder) remove(s ast.Stmt) {
	g.wrap(s, "remove", "", "if mutant.Off(@) { ", " }")
}

// removable reports whether a test could see that a call is left out. A lock that is
// not taken or not released is for the race detector.
func removable(c *ast.CallExpr) bool {
	name := types.ExprString(c.Fun)
	for _, suffix := range []string{"panic", "Lock", "Unlock", "Grow"} {
		if strings.HasSuffix(name, suffix) {
			return false
		}
	}
	return !measures(name)
}

// measures reports whether a function asserts something or counts steps, which only a
// build with the tag invariants does.
func measures(name string) bool { return strings.HasPrefix(name, "invariant.") || name == "step" }

func blank(list []ast.Expr) bool {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

// assignment finds the mutant of an operator that assigns.
func (g *finder) assignment(s *ast.AssignStmt) {
	with := map[token.Token]string{
		token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.OR_ASSIGN: "&=", token.AND_ASSIGN: "|=",
		token.SHL_ASSIGN: ">>=", token.SHR_ASSIGN: "<<=", token.AND_NOT_ASSIGN: "|=",
	}[s.Tok]
	if with == "" || !g.integer(s.Lhs[0]) {
		return
	}
	changed := g.text(s.Lhs[0]) + " " + with + " " + g.text(s.Rhs[0])
	g.wrap(s, "arithmetic", changed, "if mutant.On(@) { "+changed+" } else { ", " }")
}

// errNil finds the mutant that returns nil in place of an error.
func (g *finder) errNil(s *ast.ReturnStmt, fn *ast.FuncType) {
	if !g.returnsError(s, fn) {
		return
	}
	last := s.Results[len(s.Results)-1]
	with := "return "
	for _, r := range s.Results[:len(s.Results)-1] {
		with += g.text(r) + ", "
	}
	with += "nil"
	done := with
	if _, ok := last.(*ast.Ident); !ok {
		done = "_ = " + g.text(last) + "; " + with // what the call does is still done
	}
	start, end := g.offset(s.Pos()), g.offset(s.End())
	g.add(s, "errnil", with).edits = []edit{
		{start, start, "if mutant.On(@) { " + done + " }; ", opening, end - start},
	}
}

// returnsError reports whether the last result of s is an error other than nil.
func (g *finder) returnsError(s *ast.ReturnStmt, fn *ast.FuncType) bool {
	n := len(s.Results)
	if n == 0 || fn.Results == nil || fn.Results.NumFields() != n {
		return false
	}
	fields := fn.Results.List
	return g.isError(fields[len(fields)-1].Type) && g.text(s.Results[n-1]) != "nil"
}

func (g *finder) isError(e ast.Expr) bool {
	return types.Identical(g.info.TypeOf(e), types.Universe.Lookup("error").Type())
}
