package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"
)

// consume uses the release as a program outside the repository does.
func consume(ctx context.Context, scratch, proxy, version string, modules []*member) (err error) {
	goEnv, err := command(ctx, scratch, nil, "go", "env", "GOPROXY", "GOMODCACHE")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(goEnv), "\n")
	upstream, cache := strings.TrimSuffix(lines[0], ",direct"), lines[1] // the modules under test are in no repository
	root := modules[0].path
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB=" + root + "," + root + "/*",
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + upstream, "GOBIN=" + filepath.Join(scratch, "bin")}
	defer func() { err = errors.Join(err, forget(cache, root)) }()
	if err := forget(cache, root); err != nil { // an earlier trial of this version
		return err
	}

	if err := followReadme(ctx, modules[0].at("README.md"), filepath.Join(scratch, "newcomer"), env); err != nil {
		return err
	}
	dir := filepath.Join(scratch, "consumer")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	if _, err := command(ctx, dir, env, "go", "mod", "init", "consumer.example"); err != nil {
		return err
	}
	var paths, commands, programs []string
	for _, m := range modules {
		found, err := m.programs()
		if err != nil {
			return err
		}
		if m.dir == "cmd" {
			for _, p := range found {
				commands = append(commands, p+"@"+version)
			}
			continue
		}
		paths = append(paths, m.path+"@"+version)
		programs = append(programs, found...)
	}
	if _, err := command(ctx, dir, env, "go", append([]string{"get"}, paths...)...); err != nil {
		return err
	}
	fmt.Println("got     ", strings.Join(paths, " "))
	if err := runPrograms(ctx, modules[0].at("README.md"), dir, env); err != nil {
		return err
	}
	for _, p := range programs {
		if _, err := command(ctx, dir, env, "go", "run", p); err != nil {
			return err
		}
		fmt.Println("ran     ", p)
	}
	for _, c := range commands {
		if _, err := command(ctx, scratch, env, "go", "install", c); err != nil {
			return err
		}
		fmt.Println("installed", c)
	}
	return nil
}

// followReadme does in an empty directory what README.md says, up to the first command that is for a clone: it types the commands
// as they are, with no flags set for go, and saves the first program as main.go.
func followReadme(ctx context.Context, markdown, dir string, env []string) error {
	text, err := os.ReadFile(markdown)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	env = append(slices.Clone(env), "GOFLAGS=")
	ran := 0
	for _, block := range strings.Split(string(text), "\n```")[1:] {
		kind, body, _ := strings.Cut(block, "\n")
		switch {
		case kind == "go" && strings.HasPrefix(body, "package main\n"):
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(body+"\n"), 0o666); err != nil {
				return err
			}
		case kind == "sh" && !strings.Contains(body, "./"):
			for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
				out, err := command(ctx, dir, env, "bash", "-c", line)
				if err != nil {
					return err
				}
				fmt.Printf("typed    %s\n%s", line, out)
				ran++
			}
		}
	}
	if ran < 3 {
		return fmt.Errorf("README.md has %d commands for an empty module, want 3 or more", ran)
	}
	return nil
}

// runPrograms vets and runs every complete program in a Markdown file.
func runPrograms(ctx context.Context, markdown, dir string, env []string) error {
	text, err := os.ReadFile(markdown)
	if err != nil {
		return err
	}
	programs := slices.DeleteFunc(strings.Split(string(text), "```go\n")[1:], func(s string) bool {
		return !strings.HasPrefix(s, "package main\n")
	})
	if len(programs) == 0 {
		return fmt.Errorf("%s has no program", filepath.Base(markdown))
	}
	for i, p := range programs {
		code, _, _ := strings.Cut(p, "```")
		name := fmt.Sprintf("program%d", i+1)
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name, "main.go"), []byte(code), 0o666); err != nil {
			return err
		}
		if _, err := command(ctx, dir, env, "go", "vet", "./"+name); err != nil {
			return err
		}
		out, err := command(ctx, dir, env, "go", "run", "./"+name)
		if err != nil {
			return err
		}
		fmt.Printf("ran      program %d of README.md:\n%s", i+1, out)
	}
	return nil
}

// programs returns the import paths of the programs that a module under examples is made of.
func (m *member) programs() (paths []string, err error) {
	if m.dir != "cmd" && m.dir != "examples" {
		return nil, nil
	}
	dirs, err := os.ReadDir(m.at("."))
	for _, d := range dirs {
		if d.IsDir() && m.isCommand(d.Name()) {
			paths = append(paths, m.path+"/"+d.Name())
		}
	}
	return paths, err
}

// isCommand reports whether a package of the module is a program.
func (m *member) isCommand(dir string) bool {
	text, err := os.ReadFile(m.at(filepath.Join(dir, "main.go")))
	return err == nil && strings.Contains("\n"+string(text), "\npackage main\n")
}

// forget removes the modules of this repository from the module cache.
func forget(cache, root string) error {
	var errs []error
	for _, dir := range []string{filepath.Join(cache, filepath.FromSlash(root)), filepath.Join(cache, "cache", "download", filepath.FromSlash(root))} {
		found, _ := filepath.Glob(dir + "*")
		for _, f := range found {
			// The cache is read-only.
			_ = filepath.Walk(f, func(path string, info os.FileInfo, err error) error {
				if err == nil && info.IsDir() {
					return os.Chmod(path, 0o777)
				}
				return err
			})
			errs = append(errs, os.RemoveAll(f))
		}
	}
	return errors.Join(errs...)
}

// hashMod returns the checksum of a go.mod file as go.sum has it.
func hashMod(name string) (string, error) {
	return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(name) })
}
