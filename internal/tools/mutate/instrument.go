package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

//go:embed mutant/mutant.go
var runtimeSource []byte

// runtimePath is where the package of the switches stands in the overlay. Being internal
// to the root module, it can be imported by the nested ones too.
const runtimePath = "internal/mutant"

// instrument writes copies of the files that have mutants to dir, and an overlay for the
// go command, whose name it returns.
func instrument(root, module, dir string, mutants []*Mutant) (string, error) {
	files := map[string][]*Mutant{}
	for _, m := range mutants {
		files[m.file] = append(files[m.file], m)
	}
	replace := map[string]string{}
	write := func(name string, text []byte) error {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, filepath.FromSlash(name))] = to
		return os.WriteFile(to, text, 0o666)
	}
	if err := write(runtimePath+"/mutant.go", runtimeSource); err != nil {
		return "", err
	}
	for name, in := range files {
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		if err := write(name, apply(src, module+"/"+runtimePath, in)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o666)
}

// placeholder is where an edit has the number of its mutant.
var placeholder = regexp.MustCompile(`(\bmutant\.\w+(?:\[\w+\])?\()@`)

// clause is the package clause of a file.
var clause = regexp.MustCompile(`(?m)^package \w+`)

// apply returns src with all mutants in it.
func apply(src []byte, runtime string, mutants []*Mutant) []byte {
	type numbered struct {
		edit
		id int
	}
	var edits []numbered
	for _, m := range mutants {
		for _, e := range m.edits {
			e.text = placeholder.ReplaceAllString(e.text, fmt.Sprintf("${1}%d", m.id))
			edits = append(edits, numbered{e, m.id})
		}
	}
	slices.SortStableFunc(edits, func(a, b numbered) int {
		c := cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.order, b.order))
		switch {
		case c != 0:
			return c
		case a.order == closing: // the inner one first
			return cmp.Or(cmp.Compare(a.span, b.span), cmp.Compare(b.id, a.id))
		}
		return cmp.Or(cmp.Compare(b.span, a.span), cmp.Compare(a.id, b.id))
	})
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(src[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(src[at:])
	text := out.Bytes()
	at = clause.FindIndex(text)[1]
	return slices.Concat(text[:at], []byte("; import mutant \""+runtime+"\""), text[at:])
}
