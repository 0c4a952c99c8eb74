package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed proofs.txt
var proofsText string

// proof is one way in which claims of the documents are tested.
type proof struct {
	id, method string
	jobs       []*job
}

// claim is a sentence of a document, as it stands there.
type claim struct{ document, sentence string }

// book is the proofs, and the repository as it lies on the disk.
type book struct {
	tests     map[string][]string // "directory TestX" by TestX, and by each suite that it calls, such as storetest.TestStore
	documents map[string]string   // Markdown files and package pages

	proofs   []*proof
	claims   []claim
	by       map[claim][]string // the proofs of a claim
	promises int
	problems []string // where documents, proofs and tests do not agree
}

var (
	function = regexp.MustCompile(`^func (Test\w*)\(`)
	suite    = regexp.MustCompile(`\b([a-z]+\.Test\w*)\(`)
	pageDoc  = regexp.MustCompile(`(?ms)^(?://[^\n]*\n)+package `)
	slashes  = regexp.MustCompile(`(?m)^// ?`)
)

// open reads the files that git knows.
func open(top string) (*book, error) {
	b := &book{tests: map[string][]string{}, documents: map[string]string{}, by: map[claim][]string{}}
	list, err := exec.Command("git", "-C", top, "ls-files", "*.go", "*.md").Output()
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(list)) {
		text, err := os.ReadFile(filepath.Join(top, name))
		switch {
		case os.IsNotExist(err) || strings.Contains(name, "testdata/") || name == "PROOF.md": // removed and not committed
		case err != nil:
			return nil, err
		case strings.HasSuffix(name, ".md"):
			b.documents[name] = string(text)
		case strings.HasSuffix(name, "_test.go"):
			b.addTests(string(text), path.Dir(name))
		default:
			b.documents[name] = slashes.ReplaceAllString(pageDoc.FindString(string(text)), "")
		}
	}
	return b, nil
}

func (b *book) addTests(text, dir string) {
	test := ""
	for line := range strings.Lines(text) {
		if m := function.FindStringSubmatch(line); m != nil {
			test = m[1]
			b.tests[test] = append(b.tests[test], dir+" "+test)
		} else if m := suite.FindStringSubmatch(line); m != nil {
			b.tests[m[1]] = append(b.tests[m[1]], dir+" "+test)
		}
	}
}

func (b *book) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// flat is text in one line, as sentences are compared.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// table reads proofs.txt.
func (b *book) table(text string) {
	var p *proof
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "proof":
			p = &proof{id: words[1], method: strings.Join(words[2:], " ")}
			b.proofs = append(b.proofs, p)
		case words[0] == "claim":
			c := claim{words[1], strings.Join(words[2:], " ")}
			if !strings.Contains(flat(b.documents[c.document]), c.sentence) {
				b.problem("proof %s: %s does not say %q", p.id, c.document, c.sentence)
			}
			if b.by[c] == nil {
				b.claims = append(b.claims, c)
			}
			b.by[c] = append(b.by[c], p.id)
		default:
			j := newJob(words)
			p.jobs = append(p.jobs, j)
			for _, name := range j.tests {
				if !slices.Contains(b.tests[name], j.dir+" "+name) {
					b.problem("proof %s: there is no %s in %s", p.id, name, j.dir)
				}
			}
		}
	}
}

// The forms in which a document makes claims. A row of a table with one of these heads names its tests. Between the marks, and
// below a heading Guarantees of a package page, each sentence is a claim of some proof.
var (
	heads   = []string{"| promise | test |", "| law | test | says |"}
	section = regexp.MustCompile(`(?ms)(?:^<!-- claims -->|^# Guarantees$)(.*?)(?:^<!-- /claims -->|^# |\z)`)
	named   = regexp.MustCompile("[`\\[]((?:[a-z]+\\.)?Test\\w*)[`\\]]+(?:\\(([^)]*)\\))?")
	place   = regexp.MustCompile(`\bin ([a-z]+(?:/[a-z]+)+)`)
)

// unproved reports the sentences that have to have a proof and have none.
func (b *book) unproved() {
	for _, doc := range slices.Sorted(maps.Keys(b.documents)) {
		for _, m := range section.FindAllStringSubmatch(b.documents[doc], -1) {
			for sentence := range strings.SplitSeq(strings.TrimSuffix(flat(m[1]), "."), ". ") {
				if b.by[claim{doc, sentence + "."}] == nil {
					b.problem("%s: no proof has the claim %q", doc, sentence+".")
				}
			}
		}
	}
}

// promised adds the proof of all promises: the tests that the rows of their tables name, by package.
func (b *book) promised() {
	p := &proof{id: "promises", method: "The tables of promises and laws in the documents name their tests."}
	b.proofs = append(b.proofs, p)
	jobs := map[string]*job{}
	for _, doc := range slices.Sorted(maps.Keys(b.documents)) {
		head := false
		for line := range strings.Lines(b.documents[doc]) {
			line = strings.TrimSpace(line)
			if row := head && strings.HasPrefix(line, "|"); !row || strings.HasPrefix(line, "|---") {
				head = row || slices.Contains(heads, line)
				continue
			}
			b.promises++
			tests := b.name(doc, strings.Split(line, " | ")[1])
			if len(tests) == 0 {
				b.problem("%s: no test is named: %s", doc, line)
			}
			for _, test := range tests {
				dir, name, _ := strings.Cut(test, " ")
				if jobs[dir] == nil {
					jobs[dir] = newJob([]string{"test", dir})
					p.jobs = append(p.jobs, jobs[dir])
				}
				if !slices.Contains(jobs[dir].tests, name) {
					jobs[dir].tests = append(jobs[dir].tests, name)
				}
			}
		}
	}
}

// name returns the directories and names of the tests that a cell names: `TestX`, `TestX` in a/directory, [TestX](its/file.go),
// or `pkg.TestX` for the tests that call this suite.
func (b *book) name(doc, cell string) (tests []string) {
	for part := range strings.SplitSeq(cell, ";") {
		there := path.Dir(doc)
		if m := place.FindStringSubmatch(part); m != nil {
			there = m[1]
		}
		for _, m := range named.FindAllStringSubmatch(part, -1) {
			all := b.tests[m[1]]
			for _, near := range []string{path.Join(path.Dir(doc), path.Dir(m[2])), there, path.Dir(doc)} {
				if slices.Contains(all, near+" "+m[1]) {
					all = []string{near + " " + m[1]}
				}
			}
			if len(all) != 1 && !strings.Contains(m[1], ".") {
				b.problem("%s: %s is a test of %d packages: %v", doc, m[1], len(all), all)
			}
			tests = append(tests, all...)
		}
	}
	return tests
}
