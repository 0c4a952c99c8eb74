package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Mutant is one change of one place of the source.
type Mutant struct {
	id            int
	pkg           string // import path
	file          string // relative to the root of the repository
	line          int
	fn            string // the function it is in
	op            string
	before, after string // the first line of the place
	edits         []edit
}

// key names m in the table of survivors. It holds no line number, so that an entry
// outlives changes elsewhere in the file.
func (m *Mutant) key() string {
	return strings.Join([]string{m.file, m.fn, m.op, m.before, m.after}, "\t")
}

// edit replaces the bytes from start to end of a file; an empty range inserts. Edits of
// nested mutants nest, because all of them wrap a node or replace a token.
type edit struct {
	start, end int
	text       string // the @ in "mutant.F(@" stands for the number of the mutant
	order      int    // closing, opening or replacing
	span       int    // length of the node
}

const (
	closing = iota // what ends at an offset comes before what starts there
	opening
	replacing
)

// finder collects the mutants of a file.
type finder struct {
	fset  *token.FileSet
	info  *types.Info
	pkg   *types.Package
	src   []byte
	file  string
	base  int // of the file in fset
	fn    string
	found []*Mutant
}

// find returns all mutants of the packages that patterns match.
func find(root string, env, patterns []string) ([]*Mutant, error) {
	cfg := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir: root, Env: env,
	}
	pkgs, err := packages.Load(cfg, patterns...)
	if err != nil {
		return nil, err
	}
	var all []*Mutant
	for _, p := range pkgs {
		for _, err := range p.Errors {
			return nil, err
		}
		for i, f := range p.Syntax {
			name := p.CompiledGoFiles[i]
			src, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return nil, err
			}
			if ast.IsGenerated(f) {
				continue
			}
			all = append(all, findFile(p.Fset, p.TypesInfo, p.Types, f, src, filepath.ToSlash(rel))...)
		}
	}
	return all, nil
}

func findFile(fset *token.FileSet, info *types.Info, pkg *types.Package, f *ast.File, src []byte, rel string) []*Mutant {
	g := &finder{fset: fset, info: info, pkg: pkg, src: src, file: rel, base: fset.File(f.FileStart).Base()}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			g.fn = fn.Name.Name
			if fn.Recv != nil {
				g.fn = strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*") + "." + g.fn
			}
			g.body(fn)
			g.walk(fn.Body, fn.Type)
		}
	}
	seen := map[string]int{}
	for _, m := range g.found { // the second of two like ones in a function is told apart
		if seen[m.key()]++; seen[m.key()] > 1 {
			m.op = fmt.Sprintf("%s#%d", m.op, seen[m.key()])
		}
	}
	return g.found
}

// walk visits the nodes below n, which is in a function of type fn.
func (g *finder) walk(n ast.Node, fn *ast.FuncType) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			g.walk(n.Body, n.Type)
			return false
		case *ast.GenDecl:
			return n.Tok == token.VAR // constants can't be switched
		case *ast.ArrayType:
			return false
		case *ast.CallExpr:
			return g.call(n)
		case *ast.ReturnStmt:
			g.results(n, fn)
			return false
		case *ast.CompositeLit:
			g.composite(n, fn)
			return false
		case *ast.BlockStmt:
			g.statements(n.List, fn)
		case *ast.CaseClause:
			g.statements(n.Body, fn)
		case *ast.CommClause:
			g.statements(n.Body, fn)
			if n.Comm != nil {
				g.never(n)
			}
		case *ast.IfStmt:
			g.condition(n)
		case ast.Expr:
			if g.constant(n) {
				return false
			}
			if b, ok := n.(*ast.BinaryExpr); ok {
				g.binary(b)
			}
		}
		return true
	})
}

// call reports whether to look into a call. Mutants of assertions, counts of steps,
// panics and capacities change nothing that a test should see.
func (g *finder) call(c *ast.CallExpr) bool {
	name := types.ExprString(c.Fun)
	for i, e := range c.Args {
		if tv := g.info.Types[e]; tv.Type != nil && tv.Type.String() == "context.Context" && !strings.HasPrefix(g.text(e), "context.") {
			g.wrap(e, "context", "context.Background()", "mutant.Context(@, ", ")")
		} else if i == 0 && name == "fmt.Errorf" && tv.Value != nil && strings.Contains(g.text(e), "%w") {
			g.wrap(e, "unwrap", strings.ReplaceAll(g.text(e), "%w", "%v"), "mutant.Unwrap(@, ", ")")
		}
	}
	return name != "panic" && name != "make" && !measures(name)
}

// results visits what a return statement returns. The constants that go with an error
// mean nothing.
func (g *finder) results(s *ast.ReturnStmt, fn *ast.FuncType) {
	fails := g.returnsError(s, fn)
	for _, e := range s.Results {
		if !fails || g.info.Types[e].Value == nil {
			g.walk(e, fn)
		}
	}
}

// composite visits the values of a literal; keys may have to be constant.
func (g *finder) composite(c *ast.CompositeLit, fn *ast.FuncType) {
	fields, _ := g.info.Types[c].Type.Underlying().(*types.Struct)
	for _, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
			if fields != nil {
				g.zero(fields, kv)
			}
		}
		g.walk(e, fn)
	}
}

// zero finds the mutant of a field of a literal that stays empty, such as the error that an error wraps.
func (g *finder) zero(fields *types.Struct, kv *ast.KeyValueExpr) {
	for i := range fields.NumFields() {
		tv := g.info.Types[kv.Value]
		if f := fields.Field(i); f.Name() == g.text(kv.Key) && tv.Value == nil && types.Identical(f.Type(), tv.Type) {
			g.wrap(kv.Value, "zero", "(zero)", "mutant.Zero(@, ", ")")
		}
	}
}

// condition finds mutants of a whole condition.
func (g *finder) condition(n *ast.IfStmt) {
	if strings.HasPrefix(g.text(n.Cond), "invariant.") {
		return
	}
	last := ast.Stmt(nil)
	if len(n.Body.List) != 0 {
		last = n.Body.List[len(n.Body.List)-1]
	}
	switch last.(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		if n.Else == nil {
			g.wrap(n.Cond, "guard", "false", "(mutant.Off(@) && (", "))")
		}
	}
	switch c := n.Cond.(type) {
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			g.other(c, "negate", g.text(c.X))
		}
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr:
		g.other(n.Cond, "negate", "!"+g.text(n.Cond))
	}
}

var otherOp = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==",
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+", token.MUL: "+", token.QUO: "*", token.REM: "/",
	token.AND: "|", token.OR: "&", token.SHL: ">>", token.SHR: "<<",
}

// binary finds mutants of an expression that is no constant.
func (g *finder) binary(b *ast.BinaryExpr) {
	with := otherOp[b.Op]
	x, y := g.text(b.X), g.text(b.Y)
	switch b.Op {
	case token.EQL, token.NEQ:
		g.other(b, "negate", x+" "+with+" "+y)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		g.other(b, "boundary", x+" "+with+" "+y)
	case token.LAND, token.LOR:
		g.other(b, "logic", "("+x+") "+with+" ("+y+")")
		g.other(b, "operand", x)
		g.other(b, "operand", y)
	default:
		if with == "" || !g.integer(b) || g.untypedShift(b.X) || g.untypedShift(b.Y) {
			return
		}
		open := fmt.Sprintf("mutant.Arith(@, '%s', '%s', ", b.Op, with)
		if b.Op == token.SHL || b.Op == token.SHR {
			if g.info.Types[b.X].Value != nil || g.info.Types[b.Y].Value != nil && !g.typed(b.Y) {
				return // the context gives the type of the left side
			}
			open = fmt.Sprintf("mutant.Shift(@, %t, ", b.Op == token.SHL)
		}
		m := g.wrap(b, "arithmetic", x+" "+with+" "+y, open, ")")
		at := g.offset(b.OpPos)
		m.edits = append(m.edits, edit{at, at + len(b.Op.String()), ",", replacing, 0})
	}
}

// constant finds the mutant of a constant with a literal in it, and reports whether e is
// constant.
func (g *finder) constant(e ast.Expr) bool {
	tv := g.info.Types[e]
	if tv.Value == nil {
		return false
	}
	if id, ok := e.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") && tv.Type == types.Typ[types.Bool] {
		if id.Name == "true" {
			g.replace(e, "bool", "false", "mutant.Off(@)")
		} else {
			g.replace(e, "bool", "true", "mutant.On(@)")
		}
	}
	literal := false
	ast.Inspect(e, func(n ast.Node) bool {
		_, lit := n.(*ast.BasicLit)
		id, _ := n.(*ast.Ident)
		named, _ := g.info.Uses[id].(*types.Const) // a size or a limit
		literal = literal || lit || named != nil
		return true
	})
	name, ok := g.typeName(tv.Type)
	if !literal || !ok || tv.Value.Kind() != constant.Int {
		return true
	}
	text := g.text(e)
	with := constant.BinaryOp(tv.Value, token.ADD, constant.MakeInt64(1))
	less := constant.BinaryOp(tv.Value, token.SUB, constant.MakeInt64(1))
	if up := len(text)%2 == 0 || constant.Sign(tv.Value) == 0; !up && g.fits(less, tv.Type) || !g.fits(with, tv.Type) {
		with = less
	}
	g.replace(e, "const", with.ExactString(), fmt.Sprintf("mutant.Const[%s](@, %s, %s)", name, text, with.ExactString()))
	return true
}

func (g *finder) fits(v constant.Value, t types.Type) bool {
	b := t.Underlying().(*types.Basic)
	size := 8 * types.SizesFor("gc", "amd64").Sizeof(b)
	if b.Info()&types.IsUnsigned == 0 {
		size--
	}
	return int64(constant.BitLen(v)) <= size
}

// typeName returns the name of an integer type that can be written in this package.
func (g *finder) typeName(t types.Type) (string, bool) {
	b, ok := t.Underlying().(*types.Basic)
	if !ok || b.Info()&types.IsInteger == 0 || b.Info()&types.IsUntyped != 0 {
		return "", false
	}
	switch t := types.Unalias(t).(type) {
	case *types.Basic:
		return t.Name(), true
	case *types.Named:
		return t.Obj().Name(), t.Obj().Pkg() == g.pkg && t.Obj().Parent() == g.pkg.Scope()
	}
	return "", false
}

func (g *finder) typed(e ast.Expr) bool {
	b, ok := g.info.Types[e].Type.(*types.Basic)
	return !ok || b.Info()&types.IsUntyped == 0
}

func (g *finder) integer(e ast.Expr) bool {
	t := g.info.Types[e].Type
	if _, param := types.Unalias(t).(*types.TypeParam); param {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsInteger != 0 && b.Info()&types.IsUntyped == 0
}

// untypedShift reports whether e has a shift of an untyped constant in it, whose type
// a type argument can't be inferred from.
func (g *finder) untypedShift(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.SHL || b.Op == token.SHR) && g.info.Types[b.X].Value != nil {
			found = true
		}
		return !found
	})
	return found
}

// wrap adds a mutant that puts text before and after n.
func (g *finder) wrap(n ast.Node, op, with, before, after string) *Mutant {
	start, end := g.offset(n.Pos()), g.offset(n.End())
	m := g.add(n, op, with)
	m.edits = []edit{
		{start, start, before, opening, end - start},
		{end, end, after, closing, end - start},
	}
	return m
}

// other adds a mutant that evaluates with in place of the condition n.
func (g *finder) other(n ast.Expr, op, with string) {
	if b, ok := g.info.Types[n].Type.Underlying().(*types.Basic); !ok || b.Info()&types.IsBoolean == 0 {
		return
	}
	g.wrap(n, op, with, "(mutant.On(@) && ("+with+") || mutant.Off(@) && (", "))")
}

func (g *finder) replace(n ast.Node, op, with, text string) {
	start, end := g.offset(n.Pos()), g.offset(n.End())
	g.add(n, op, with).edits = []edit{{start, end, text, replacing, end - start}}
}

// add appends a mutant that has with where n stands.
func (g *finder) add(n ast.Node, op, with string) *Mutant {
	start, end := g.offset(n.Pos()), g.offset(n.End())
	from := slices.Max([]int{0, lastIndex(g.src[:start], '\n') + 1})
	to := end
	for to < len(g.src) && g.src[to] != '\n' {
		to++
	}
	m := &Mutant{
		pkg: g.pkg.Path(), file: g.file, line: g.fset.Position(n.Pos()).Line, fn: g.fn, op: op,
		before: brief(string(g.src[from:to])),
		after:  brief(string(g.src[from:start]) + with + string(g.src[end:to])),
	}
	g.found = append(g.found, m)
	return m
}

func lastIndex(b []byte, c byte) int { return strings.LastIndexByte(string(b), c) }

// brief puts source on one line.
func brief(s string) string { return strings.Join(strings.Fields(s), " ") }

func (g *finder) text(n ast.Node) string {
	return string(g.src[g.offset(n.Pos()):g.offset(n.End())])
}

func (g *finder) offset(p token.Pos) int { return int(p) - g.base }
