// Command api lists what each package that others import exports, one declaration on a line, in the file api.txt beside the
// package. Without -write it compares the files with the source and fails if they differ, so a change of the API shows in the
// same commit as a change of that file.
//
//	cd internal/tools && GOWORK=off go run ./api -write     what make api does
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const (
	root = "github.com/ipalloc/ipalloc"
	file = "api.txt"
)

func main() {
	write := flag.Bool("write", false, "write the files")
	top := flag.String("top", "../..", "the `DIRECTORY` of the repository")
	flag.Parse()
	if err := run(*top, *write); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(top string, write bool) error {
	list, err := load(top)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var stale []string
	for _, p := range list {
		name := filepath.Join(p.Dir, file)
		wanted[name] = true
		text := []byte(strings.Join(exported(p.Types), "\n") + "\n")
		have, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		switch {
		case bytes.Equal(have, text):
		case write:
			if err := os.WriteFile(name, text, 0o666); err != nil {
				return err
			}
		default:
			stale = append(stale, p.PkgPath)
			report(p.PkgPath, have, text)
		}
	}
	left, err := leftOver(top, wanted)
	if err != nil {
		return err
	}
	for _, name := range left {
		if !write {
			stale = append(stale, name)
		} else if err := os.Remove(name); err != nil {
			return err
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("the API is another one than %s says: look at the change, then type make api (%s)", file, strings.Join(stale, ", "))
	}
	return nil
}

// load returns the packages of the workspace that others may import, with their types.
func load(top string) ([]*packages.Package, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/...")
	cmd.Dir, cmd.Env, cmd.Stderr = top, append(os.Environ(), "GOWORK="), os.Stderr
	modules, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	c := &packages.Config{Dir: top, Env: cmd.Env, Mode: packages.NeedName | packages.NeedFiles | packages.NeedTypes | packages.NeedImports}
	all, err := packages.Load(c, strings.Fields(string(modules))...)
	if err != nil {
		return nil, err
	}
	if packages.PrintErrors(all) > 0 {
		return nil, errors.New("the packages do not compile")
	}
	list := slices.DeleteFunc(all, func(p *packages.Package) bool { return p.Name == "main" || !public(p.PkgPath) || len(p.GoFiles) == 0 })
	return list, nil
}

// public reports whether programs of others may import a package.
func public(path string) bool {
	for _, dir := range []string{"/cmd/", "/examples/", "/bench/", "/fuzz/", "/internal/"} {
		if strings.Contains(path+"/", dir) {
			return false
		}
	}
	return true
}

// leftOver returns the files of packages that are no more.
func leftOver(top string, wanted map[string]bool) (names []string, err error) {
	top, err = filepath.Abs(top)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err == nil && d.Name() == file && !wanted[name] {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// report prints the lines that differ.
func report(path string, have, want []byte) {
	fmt.Println(path)
	a, b := strings.Split(string(have), "\n"), strings.Split(string(want), "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			fmt.Println("  -", line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			fmt.Println("  +", line)
		}
	}
}
