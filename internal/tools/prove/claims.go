package main

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// promise is a row of a table in a document that names the tests behind it.
type promise struct {
	document, text string
	tests          []test
}

// The forms in which a document makes claims. A row of a table with one of these heads names its tests. Between the marks, and
// below a heading Guarantees of a package page, each sentence is a claim of some proof in the table.
var (
	heads   = []string{"| promise | test |", "| law | test | says |"}
	region  = regexp.MustCompile(`(?s)<!-- claims -->(.*?)<!-- /claims -->`)
	section = regexp.MustCompile(`(?ms)^# Guarantees$(.*?)(?:^# |\z)`)
	named   = regexp.MustCompile("[`\\[](?:[a-z]+\\.)?Test[A-Za-z0-9]*[`\\]](?:\\([^)]*\\))?")
	place   = regexp.MustCompile(`\bin ([a-z]+(?:/[a-z]+)+)`)
)

// collect returns the proofs, the promises of the documents, and where they do not agree.
func (r *repo) collect() (proofs []*proof, promises []*promise, problems []string) {
	proofs = table(r)
	problems = append(problems, r.checkProofs(proofs)...)
	for _, doc := range slices.Sorted(maps.Keys(r.raw)) {
		rows, bad := r.rows(doc)
		promises = append(promises, rows...)
		problems = append(problems, bad...)
	}
	return proofs, promises, append(problems, r.unproved(proofs)...)
}

// unproved reports the sentences that have to have a proof and have none.
func (r *repo) unproved(proofs []*proof) (problems []string) {
	for _, doc := range slices.Sorted(maps.Keys(r.raw)) {
		for _, s := range claimed(doc, r.raw[doc]) {
			if !slices.ContainsFunc(proofs, func(p *proof) bool { return slices.Contains(p.claims, claim{doc, s}) }) {
				problems = append(problems, fmt.Sprintf("%s: no proof has the claim %q", doc, s))
			}
		}
	}
	return problems
}

// checkProofs reports proofs without a claim, sentences that no document has, and tests that there are not.
func (r *repo) checkProofs(proofs []*proof) (problems []string) {
	ids := map[string]bool{}
	for _, p := range proofs {
		if ids[p.id] {
			problems = append(problems, fmt.Sprintf("proof %s: there are two", p.id))
		}
		ids[p.id] = true
		if len(p.claims) == 0 {
			problems = append(problems, fmt.Sprintf("proof %s: it has no claim", p.id))
		}
		for _, c := range p.claims {
			if !strings.Contains(r.texts[c.document], flat(c.sentence)) {
				problems = append(problems, fmt.Sprintf("proof %s: %s does not say %q", p.id, c.document, c.sentence))
			}
		}
		for _, part := range p.parts {
			for _, name := range part.tests {
				if !slices.Contains(r.tests[name], part.dir) && !slices.Contains(r.fuzz, test{part.dir, name}) {
					problems = append(problems, fmt.Sprintf("proof %s: there is no %s in %s", p.id, name, part.dir))
				}
			}
		}
	}
	return problems
}

// rows returns the promises in the tables of a document, and reports rows whose tests are not named or not there.
func (r *repo) rows(doc string) (rows []*promise, problems []string) {
	in := ""
	for line := range strings.Lines(r.raw[doc]) {
		line = strings.TrimSpace(line)
		switch {
		case slices.Contains(heads, line):
			in = line
		case !strings.HasPrefix(line, "|"):
			in = ""
		case in != "" && !strings.HasPrefix(line, "|---"):
			cells := strings.Split(strings.Trim(line, "|"), " | ")
			text, tests := strings.TrimSpace(cells[0]), cells[1]
			if strings.HasPrefix(in, "| law") {
				text = strings.TrimSpace(cells[2])
			}
			p := &promise{document: doc, text: text}
			err := r.name(p, tests)
			if err == nil && len(p.tests) == 0 {
				err = fmt.Errorf("no test is named")
			}
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %q: %v", doc, text, err))
			}
			rows = append(rows, p)
		}
	}
	return rows, problems
}

// name finds the tests that a cell names: `TestX`, `TestX` in a/directory, [TestX](its/file.go), or `pkg.TestX` for the tests
// that call this suite.
func (r *repo) name(p *promise, cell string) error {
	found := named.FindAllStringIndex(cell, -1)
	for i, at := range found {
		name, link, _ := strings.Cut(strings.Trim(cell[at[0]:at[1]], "`)"), "](")
		name = strings.Trim(name, "[]`")
		if strings.Contains(name, ".") {
			if len(r.suites[name]) == 0 {
				return fmt.Errorf("no test calls %s", name)
			}
			p.tests = append(p.tests, r.suites[name]...)
			continue
		}
		below := path.Dir(p.document)
		if link != "" {
			below = path.Dir(path.Join(below, link))
		} else if m := place.FindStringSubmatch(cell[at[1]:]); m != nil && (i+1 == len(found) || !strings.Contains(cell[at[1]:found[i+1][0]], ";")) {
			below = m[1]
		}
		tests, err := r.find(name, below)
		if err != nil {
			return err
		}
		p.tests = append(p.tests, tests...)
	}
	return nil
}

// claimed returns the sentences of a document that have to have a proof.
func claimed(doc, text string) (out []string) {
	marks := region
	if strings.HasSuffix(doc, ".go") {
		marks = section
	}
	for _, m := range marks.FindAllStringSubmatch(text, -1) {
		for sentence := range strings.SplitSeq(strings.TrimSuffix(flat(m[1]), "."), ". ") {
			out = append(out, sentence+".")
		}
	}
	return out
}

func sentences(proofs []*proof) (n int) {
	for _, p := range proofs {
		n += len(p.claims)
	}
	return n
}
