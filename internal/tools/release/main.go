// Command release prepares a release of every module that people install, and proves
// that a program outside this repository can fetch and run it.
//
//	go run ./release                          try it with a version made from HEAD; change nothing
//	go run ./release -version v0.1.0 -write   the same, and write go.mod and go.sum of the nested modules
//	go run ./release -pin                     only have the nested modules require their siblings at HEAD
//
// It exports the commit at HEAD, sets the version of the sibling modules in each
// go.mod, writes the checksums to go.sum, and packs the modules into a module proxy in
// the file system. In a new module outside the tree, with that proxy, it then gets
// every package, compiles and runs the programs of README.md and of examples/embed, and
// installs the commands. With -write it requires a section of that version in CHANGELOG.md. It
// prints the tags to set at the end.
//
// Between releases, "go get" of a nested module at a commit works if the versions that
// its go.mod requires exist. So after a change that a nested module needs from a
// sibling has landed, -pin sets its requirement to the commit at HEAD.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	top := fs.String("top", "../..", "the repository")
	version := fs.String("version", "", "the version, such as v0.1.0; empty: one made from HEAD, for a trial")
	write := fs.Bool("write", false, "write go.mod and go.sum of the nested modules")
	pin := fs.Bool("pin", false, "write the version of HEAD into go.mod and go.sum of the nested modules, and nothing else")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *version == "" {
		if *version, err = trialVersion(ctx, *top); err != nil {
			return err
		}
	}
	if semver.Canonical(*version) != *version {
		return fmt.Errorf("version %q is not of the form v1.2.3", *version)
	}
	if *write {
		if err := inChangelog(*top, *version); err != nil {
			return err
		}
	}
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	stage := filepath.Join(scratch, "stage")
	if err := export(ctx, *top, stage); err != nil {
		return err
	}
	modules, err := members(stage)
	if err != nil {
		return err
	}
	proxy := filepath.Join(scratch, "proxy")
	if *pin {
		return pinToHead(*top, proxy, *version, modules)
	}
	for _, m := range modules {
		if err := errors.Join(m.pin(*version, modules), m.pack(proxy, *version)); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		fmt.Printf("packed   %s@%s  %s\n", m.path, *version, m.zipSum)
	}
	if err := consume(ctx, scratch, proxy, *version, modules); err != nil {
		return err
	}
	if *write {
		if err := writeBack(*top, *version, modules); err != nil {
			return err
		}
	}
	fmt.Println("\nCommit go.mod and go.sum of the nested modules, then:")
	for _, m := range modules {
		fmt.Printf("  git tag %s\n", m.tag(*version))
	}
	return nil
}

// pinToHead has the modules require each other as HEAD has them.
func pinToHead(top, proxy, version string, modules []*member) error {
	for _, m := range modules {
		if err := m.pack(proxy, version); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	for _, m := range modules {
		if err := m.pin(version, modules); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return writeBack(top, version, modules)
}

// trialVersion returns a pseudo-version of HEAD.
func trialVersion(ctx context.Context, top string) (string, error) {
	out, err := command(ctx, top, nil, "git", "log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd-%H")
	if err != nil {
		return "", err
	}
	stamp, hash, _ := strings.Cut(strings.TrimSpace(out), "-")
	return fmt.Sprintf("v0.0.0-%s-%.12s", stamp, hash), nil
}

// inChangelog returns an error unless CHANGELOG.md has a section of that version.
func inChangelog(top, version string) error {
	text, err := os.ReadFile(filepath.Join(top, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	heading := "\n## " + strings.TrimPrefix(version, "v")
	if !strings.Contains(string(text), heading) {
		return fmt.Errorf("CHANGELOG.md has no section %q", strings.TrimSpace(heading))
	}
	return nil
}

// export writes the files of HEAD to dir.
func export(ctx context.Context, top, dir string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	archive := dir + ".tar"
	if _, err := command(ctx, top, nil, "git", "archive", "--output", archive, "HEAD"); err != nil {
		return err
	}
	_, err := command(ctx, dir, nil, "tar", "-xf", archive)
	return err
}

// command runs a program in dir and returns its standard output; its error carries
// the standard error.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), err
}
