// Command api lists the exported declarations of each package that others import, one on a line, in the file api.txt beside
// the package. A change of the API therefore shows in review as a change of that file; apidiff compares with a release
// instead, and has no such list.
//
//	cd internal/tools && GOWORK=off go run ./api     what make api does; the step api fails if git sees a difference
package main

import (
	"errors"
	"fmt"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const root = "github.com/ipalloc/ipalloc"

func main() {
	if err := run("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(top string) error {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/...")
	cmd.Dir, cmd.Env, cmd.Stderr = top, append(os.Environ(), "GOWORK="), os.Stderr
	modules, err := cmd.Output()
	if err != nil {
		return err
	}
	mode := packages.NeedName | packages.NeedFiles | packages.NeedTypes | packages.NeedImports
	all, err := packages.Load(&packages.Config{Dir: top, Env: cmd.Env, Mode: mode}, strings.Fields(string(modules))...)
	if err == nil && packages.PrintErrors(all) > 0 {
		err = errors.New("the packages do not compile")
	}
	if err != nil {
		return err
	}
	clear := exec.Command("find", ".", "-name", "api.txt", "-not", "-path", "*/testdata/*", "-delete") // also of packages that are gone
	if clear.Dir = top; clear.Run() != nil {
		return errors.New("the former files cannot be removed")
	}
	private := regexp.MustCompile("/(cmd|examples|bench|fuzz|internal)/")
	for _, p := range all {
		if p.Name == "main" || private.MatchString(p.PkgPath+"/") || len(p.GoFiles) == 0 {
			continue
		}
		text := strings.Join(exported(p.Types), "\n") + "\n"
		if err := os.WriteFile(filepath.Join(p.Dir, "api.txt"), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// exported returns a line for each constant, variable, function, type, field and method that a package exports.
func exported(p *types.Package) (lines []string) {
	text := func(t types.Type) string {
		return types.TypeString(t, func(other *types.Package) string {
			if other == p {
				return ""
			}
			return strings.TrimPrefix(other.Path(), root+"/")
		})
	}
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.TypeName:
			if o.Exported() {
				lines = append(lines, typeLines(o, text)...)
			}
		case *types.Const:
			if o.Exported() {
				lines = append(lines, "const "+name+" "+text(o.Type())+" = "+o.Val().String())
			}
		case *types.Func:
			if o.Exported() {
				lines = append(lines, "func "+name+signature(o, text))
			}
		case *types.Var:
			if o.Exported() {
				lines = append(lines, "var "+name+" "+text(o.Type()))
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

var resultName = regexp.MustCompile(`#rv[0-9]+ `)

// signature is the type of a function or method without the names that the compiler gives to results of inlined functions.
func signature(f *types.Func, text func(types.Type) string) string {
	s := strings.TrimPrefix(text(f.Type()), "func")
	if before, result, found := strings.Cut(s, "(#rv1 "); found && !strings.Contains(result, "#rv2 ") {
		return before + strings.TrimSuffix(result, ")")
	}
	return resultName.ReplaceAllString(s, "")
}

func typeLines(o *types.TypeName, text func(types.Type) string) []string {
	head := "type " + o.Name()
	if o.IsAlias() {
		return []string{head + " = " + text(types.Unalias(o.Type()))}
	}
	if n, ok := o.Type().(*types.Named); ok && n.TypeParams().Len() > 0 {
		var list []string
		for p := range n.TypeParams().TypeParams() {
			list = append(list, p.Obj().Name()+" "+text(p.Constraint()))
		}
		head += "[" + strings.Join(list, ", ") + "]"
	}
	switch u := o.Type().Underlying().(type) {
	case *types.Interface:
		lines := []string{head + " interface"}
		for m := range u.Methods() {
			lines = append(lines, head+" interface, "+m.Name()+signature(m, text))
		}
		return lines
	case *types.Struct:
		lines := []string{head + " struct"}
		for f := range u.Fields() {
			if f.Exported() {
				lines = append(lines, head+" struct, "+f.Name()+" "+text(f.Type()))
			}
		}
		return append(lines, methodLines(o, text)...)
	default:
		return append(methodLines(o, text), head+" "+text(u))
	}
}

// methodLines has the methods of embedded types too, whose own package may be internal.
func methodLines(o *types.TypeName, text func(types.Type) string) (lines []string) {
	value, pointer := types.NewMethodSet(o.Type()), types.NewMethodSet(types.NewPointer(o.Type()))
	for m := range pointer.Methods() {
		f := m.Obj().(*types.Func)
		receiver := "*" + o.Name()
		if value.Lookup(f.Pkg(), f.Name()) != nil {
			receiver = o.Name()
		}
		if f.Exported() {
			lines = append(lines, "method ("+receiver+") "+f.Name()+signature(f, text))
		}
	}
	return lines
}
