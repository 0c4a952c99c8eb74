package main

import (
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// exported returns a line for each constant, variable, function, type, field and method that a package exports, in the order
// of their names. A type that the package declares as an alias of an internal one is listed as if it were declared in the
// package, because users see it so.
func exported(p *types.Package) []string {
	l := &lister{own: p, names: map[string]string{}}
	scope := p.Scope()
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok && t.Exported() && t.IsAlias() {
			if n := ourType(t.Type()); n != nil {
				l.names[short(n.Obj().Pkg())+"."+n.Obj().Name()] = name
			}
		}
	}
	for _, name := range scope.Names() {
		if o := scope.Lookup(name); o.Exported() {
			l.object(o)
		}
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines)
}

// A lister collects the lines of one package.
type lister struct {
	own   *types.Package
	names map[string]string // of types of other packages of this repository, in this one
	lines []string
}

func (l *lister) add(parts ...string) {
	line := plainResults(strings.Join(parts, ""))
	for theirs, own := range l.names {
		line = replaceName(line, theirs, own)
	}
	l.lines = append(l.lines, line)
}

var resultName = regexp.MustCompile(`#rv[0-9]+ `)

// plainResults removes the names that the compiler gives to results without one, where it has inlined the function.
func plainResults(line string) string {
	if before, result, found := strings.Cut(line, "(#rv1 "); found && !strings.Contains(result, "#rv2 ") {
		return before + strings.TrimSuffix(result, ")")
	}
	return resultName.ReplaceAllString(line, "")
}

// replaceName replaces a qualified name where it is not the beginning of a longer one.
func replaceName(line, from, to string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(line, from)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		longer := after != "" && (after[0] == '_' || after[0] >= '0' && after[0] <= '9' || after[0] >= 'A' && after[0] <= 'Z' || after[0] >= 'a' && after[0] <= 'z')
		if longer {
			b.WriteString(from)
		} else {
			b.WriteString(to)
		}
		line = after
	}
}

// ourType returns the type behind an alias if a package of this repository declares it.
func ourType(t types.Type) *types.Named {
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() == nil || !strings.HasPrefix(n.Obj().Pkg().Path()+"/", root+"/") {
		return nil
	}
	return n
}

// hidden reports whether users see the type behind an alias by the alias alone.
func hidden(t types.Type) bool {
	n := ourType(t)
	return n != nil && strings.Contains(n.Obj().Pkg().Path(), "/internal/")
}

func short(p *types.Package) string { return strings.TrimPrefix(p.Path(), root+"/") }

// qualifier names the packages of this repository by their path in it, and others by their whole path.
func (l *lister) qualifier(p *types.Package) string {
	if p == l.own {
		return ""
	}
	return short(p)
}

func (l *lister) text(t types.Type) string { return types.TypeString(t, l.qualifier) }

func (l *lister) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		l.add("const ", o.Name(), " ", l.text(o.Type()), " = ", o.Val().String())
	case *types.TypeName:
		l.typeName(o)
	default: // a variable or a function
		l.add(types.ObjectString(o, l.qualifier))
	}
}

func (l *lister) typeName(o *types.TypeName) {
	t, name := o.Type(), o.Name()
	if o.IsAlias() && !hidden(t) {
		l.lines = append(l.lines, "type "+name+" = "+l.text(types.Unalias(t)))
		return
	}
	t = types.Unalias(t)
	parameters := ""
	if n, ok := t.(*types.Named); ok && n.TypeParams().Len() > 0 {
		var list []string
		for p := range n.TypeParams().TypeParams() {
			list = append(list, p.Obj().Name()+" "+l.text(p.Constraint()))
		}
		parameters = "[" + strings.Join(list, ", ") + "]"
	}
	head := "type " + name + parameters
	switch u := t.Underlying().(type) {
	case *types.Struct:
		l.add(head, " struct")
		for f := range u.Fields() {
			if f.Exported() {
				l.add(head, " struct, ", f.Name(), " ", l.text(f.Type()))
			}
		}
	case *types.Interface:
		l.add(head, " interface")
		for m := range u.Methods() {
			l.add(head, " interface, ", m.Name(), strings.TrimPrefix(l.text(m.Type()), "func"))
		}
		return
	default:
		l.add(head, " ", l.text(u))
	}
	value, pointer := types.NewMethodSet(t), types.NewMethodSet(types.NewPointer(t))
	for m := range pointer.Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if value.Lookup(m.Obj().Pkg(), m.Obj().Name()) != nil {
			receiver = name
		}
		l.add("method (", receiver, ") ", m.Obj().Name(), strings.TrimPrefix(l.text(m.Type()), "func"))
	}
}
