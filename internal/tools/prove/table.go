package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
	claims     []claim
	jobs       []*job
}

// claim is a sentence of a document, as it stands there.
type claim struct{ document, sentence string }

// promise is a row of a table in a document that names the tests behind it.
type promise struct {
	claim
	tests []string // directory and name
}

// repo is the repository as it lies on the disk.
type repo struct {
	top       string
	modules   map[string]bool     // directories
	tests     map[string][]string // directories by the name of a Test or Fuzz function
	suites    map[string][]string // tests by the suite that they call, such as storetest.TestStore
	documents map[string]string   // Markdown files and package pages
}

// open reads the files that git knows.
func open(top string) (*repo, error) {
	r := &repo{top: top, modules: map[string]bool{}, tests: map[string][]string{}, suites: map[string][]string{}, documents: map[string]string{}}
	list, err := exec.Command("git", "-C", top, "ls-files", "*.go", "*.md", "*go.mod").Output()
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(list)) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) || strings.Contains(name, "testdata/") || name == "PROOF.md" {
			continue // removed and not committed
		}
		switch {
		case err != nil:
			return nil, err
		case path.Base(name) == "go.mod":
			r.modules[path.Dir(name)] = true
		case strings.HasSuffix(name, ".md"):
			r.documents[name] = string(text)
		default:
			f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				return nil, err
			}
			if f.Doc != nil {
				r.documents[name] = f.Doc.Text()
			}
			if strings.HasSuffix(name, "_test.go") {
				r.addTests(f, path.Dir(name))
			}
		}
	}
	return r, nil
}

func (r *repo) addTests(f *ast.File, dir string) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		if !slices.Contains(r.tests[fn.Name.Name], dir) {
			r.tests[fn.Name.Name] = append(r.tests[fn.Name.Name], dir)
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Test") {
				if x, ok := s.X.(*ast.Ident); ok {
					r.suites[x.Name+"."+s.Sel.Name] = append(r.suites[x.Name+"."+s.Sel.Name], dir+" "+fn.Name.Name)
				}
			}
			return true
		})
	}
}

// flat is text in one line, as sentences are compared.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// table reads proofs.txt and returns what of it the repository does not have.
func (r *repo) table(text string) (proofs []*proof, problems []string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] == "proof" {
			proofs = append(proofs, &proof{id: words[1], method: strings.Join(words[2:], " ")})
			continue
		}
		p := proofs[len(proofs)-1]
		switch words[0] {
		case "claim":
			c := claim{words[1], strings.Join(words[2:], " ")}
			p.claims = append(p.claims, c)
			if !strings.Contains(flat(r.documents[c.document]), c.sentence) {
				problems = append(problems, fmt.Sprintf("proof %s: %s does not say %q", p.id, c.document, c.sentence))
			}
		case "fuzz":
			for _, name := range slices.Sorted(maps.Keys(r.tests)) {
				for _, dir := range r.tests[name] {
					if strings.HasPrefix(name, "Fuzz") {
						long := strings.HasPrefix(dir, "bench/") // instrumenting the peers takes longer than a short run
						p.jobs = append(p.jobs, &job{kind: "fuzz", dir: dir, tests: []string{name}, unit: "inputs", hour: long})
					}
				}
			}
		default:
			j := newJob(words)
			p.jobs = append(p.jobs, j)
			for _, name := range j.tests {
				if !slices.Contains(r.tests[name], j.dir) {
					problems = append(problems, fmt.Sprintf("proof %s: there is no %s in %s", p.id, name, j.dir))
				}
			}
		}
	}
	return proofs, problems
}

// The forms in which a document makes claims. A row of a table with one of these heads names its tests. Between the marks, and
// below a heading Guarantees of a package page, each sentence is a claim of some proof.
var (
	heads   = []string{"| promise | test |", "| law | test | says |"}
	region  = regexp.MustCompile(`(?s)<!-- claims -->(.*?)<!-- /claims -->`)
	section = regexp.MustCompile(`(?ms)^# Guarantees$(.*?)(?:^# |\z)`)
	named   = regexp.MustCompile("[`\\[](?:[a-z]+\\.)?Test[A-Za-z0-9]*[`\\]](?:\\([^)]*\\))?")
	place   = regexp.MustCompile(`\bin ([a-z]+(?:/[a-z]+)+)`)
)

// unproved reports the sentences that have to have a proof and have none.
func (r *repo) unproved(proofs []*proof) (problems []string) {
	proved := map[claim]bool{}
	for _, p := range proofs {
		for _, c := range p.claims {
			proved[c] = true
		}
	}
	for _, doc := range slices.Sorted(maps.Keys(r.documents)) {
		marks := region
		if strings.HasSuffix(doc, ".go") {
			marks = section
		}
		for _, m := range marks.FindAllStringSubmatch(r.documents[doc], -1) {
			for sentence := range strings.SplitSeq(strings.TrimSuffix(flat(m[1]), "."), ". ") {
				if !proved[claim{doc, sentence + "."}] {
					problems = append(problems, fmt.Sprintf("%s: no proof has the claim %q", doc, sentence+"."))
				}
			}
		}
	}
	return problems
}

// promises returns the rows of the tables of promises, and reports rows whose tests are not named or not there.
func (r *repo) promises() (rows []promise, problems []string) {
	for _, doc := range slices.Sorted(maps.Keys(r.documents)) {
		head := ""
		for line := range strings.Lines(r.documents[doc]) {
			line = strings.TrimSpace(line)
			switch {
			case slices.Contains(heads, line):
				head = line
			case !strings.HasPrefix(line, "|"):
				head = ""
			case head != "" && !strings.HasPrefix(line, "|---"):
				cells := strings.Split(strings.Trim(line, "|"), " | ")
				p := promise{claim: claim{doc, strings.TrimSpace(cells[0])}}
				err := r.name(&p, cells[1])
				if err == nil && len(p.tests) == 0 {
					err = fmt.Errorf("no test is named")
				}
				if err != nil {
					problems = append(problems, fmt.Sprintf("%s: %q: %v", doc, p.sentence, err))
				}
				rows = append(rows, p)
			}
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
		dirs := r.tests[name]
		near := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
			return dir != below && below != "." && !strings.HasPrefix(dir, below+"/")
		})
		if slices.Contains(near, below) {
			near = []string{below}
		}
		if len(near) > 0 {
			dirs = near
		}
		if len(dirs) != 1 {
			return fmt.Errorf("%s is a test of %d packages: %v", name, len(dirs), dirs)
		}
		p.tests = append(p.tests, dirs[0]+" "+name)
	}
	return nil
}
