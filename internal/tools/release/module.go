package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// member is a module of the workspace, as the release has it.
type member struct {
	dir  string // relative to the repository, "." for the root
	top  string // where the exported files are
	path string
	file *modfile.File

	modSum, zipSum string // as go.sum has them; set by pack
}

// members returns the modules that go.work joins, each after those that it requires.
func members(top string) ([]*member, error) {
	text, err := os.ReadFile(filepath.Join(top, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var all []*member
	for _, use := range work.Use {
		m := &member{dir: filepath.Clean(use.Path), top: top}
		name := filepath.Join(top, m.dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if m.file, err = modfile.Parse(name, text, nil); err != nil {
			return nil, err
		}
		if len(m.file.Replace) != 0 {
			return nil, fmt.Errorf("%s: a module that people install has no replace", name)
		}
		m.path = m.file.Module.Mod.Path
		all = append(all, m)
	}
	return inOrder(all)
}

// inOrder sorts modules so that each comes after those that it requires.
func inOrder(all []*member) (sorted []*member, err error) {
	waiting := slices.Clone(all)
	for len(waiting) != 0 {
		i := slices.IndexFunc(waiting, func(m *member) bool {
			return !slices.ContainsFunc(waiting, func(other *member) bool { return m.requires(other.path) })
		})
		if i < 0 {
			return nil, errors.New("the modules require each other in a circle")
		}
		sorted = append(sorted, waiting[i])
		waiting = slices.Delete(waiting, i, i+1)
	}
	return sorted, nil
}

func (m *member) requires(path string) bool {
	return slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == path })
}

// pin sets the version of the siblings that m requires, in go.mod and go.sum. They
// have been packed.
func (m *member) pin(version string, siblings []*member) error {
	var sums []string
	for _, s := range siblings {
		if !m.requires(s.path) {
			continue
		}
		if err := m.file.AddRequire(s.path, version); err != nil {
			return err
		}
		sums = append(sums, fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", s.path, version, s.zipSum, s.path, version, s.modSum))
	}
	if len(sums) == 0 {
		return nil
	}
	m.file.Cleanup()
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.at("go.mod"), text, 0o666); err != nil {
		return err
	}
	old, err := os.ReadFile(m.at("go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(old), "\n"), func(line string) bool {
		return line == "" || slices.ContainsFunc(siblings, func(s *member) bool { return strings.HasPrefix(line, s.path+" ") })
	})
	for _, line := range strings.SplitAfter(strings.Join(sums, ""), "\n") {
		i := slices.IndexFunc(lines, func(other string) bool { return pathOf(other) > pathOf(line) })
		if i < 0 {
			i = len(lines)
		}
		lines = slices.Insert(lines, i, line)
	}
	return os.WriteFile(m.at("go.sum"), []byte(strings.Join(lines, "")), 0o666)
}

// pathOf returns the module path of a line of go.sum.
func pathOf(line string) string {
	path, _, _ := strings.Cut(line, " ")
	return path
}

// at returns the path of an exported file of the module.
func (m *member) at(name string) string { return filepath.Join(m.top, m.dir, name) }

// pack puts the module into the proxy as go.sum and a module proxy know it. As the go
// command does, it adds the license of the repository to a module without one.
func (m *member) pack(proxy, version string) error {
	if _, err := os.Stat(m.at("LICENSE")); errors.Is(err, fs.ErrNotExist) {
		license, err := os.ReadFile(filepath.Join(m.top, "LICENSE"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(m.at("LICENSE"), license, 0o666); err != nil {
			return err
		}
	}
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	name := filepath.Join(dir, version)
	out, err := os.Create(name + ".zip")
	if err != nil {
		return err
	}
	mod := module.Version{Path: m.path, Version: version}
	if err := errors.Join(zip.CreateFromDir(out, mod, filepath.Join(m.top, m.dir)), out.Close()); err != nil {
		return err
	}
	if m.zipSum, err = dirhash.HashZip(name+".zip", dirhash.Hash1); err != nil {
		return err
	}
	text, err := os.ReadFile(m.at("go.mod"))
	if err != nil {
		return err
	}
	if m.modSum, err = hashMod(m.at("go.mod")); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(name+".mod", text, 0o666),
		os.WriteFile(name+".info", info, 0o666),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o666))
}

// writeBack copies go.mod and go.sum of the modules that require siblings to the
// repository, and has go.work replace those versions by the directories.
func writeBack(top, version string, modules []*member) error {
	name := filepath.Join(top, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(work.Replace) {
		if err := work.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	for _, m := range modules {
		if !slices.ContainsFunc(modules, func(other *member) bool { return other.requires(m.path) }) {
			continue
		}
		dir := "./" + strings.TrimPrefix(filepath.ToSlash(m.dir), ".")
		if err := work.AddReplace(m.path, version, dir, ""); err != nil {
			return err
		}
	}
	work.Cleanup()
	if err := os.WriteFile(name, modfile.Format(work.Syntax), 0o666); err != nil {
		return err
	}
	for _, m := range modules {
		if m.dir == "." {
			continue // the root requires none of its siblings
		}
		for _, name := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(m.at(name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(top, m.dir, name), text, 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}

// tag returns the tag by which the go command finds the version.
func (m *member) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return filepath.ToSlash(m.dir) + "/" + version
}
