package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// repository writes files and reads them as one.
func repository(t *testing.T, files map[string]string) *repo {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	testFile = "package p\n\nimport \"testing\"\n\nfunc TestKept(t *testing.T) { suite.TestAll(t) }\n\nfunc TestLost(t *testing.T) {}\n\nfunc FuzzBytes(f *testing.F) {}\n"
	rows     = "| promise | test |\n|---|---|\n"
)

func small(t *testing.T, readme string) *repo {
	return repository(t, map[string]string{
		"go.mod": "module m\n", "go.work": "use (\n\t.\n\t./nested\n)\n", "nested/go.mod": "module m/nested\n",
		"x/p/p_test.go": testFile, "nested/q/q_test.go": strings.Replace(testFile, "TestLost", "TestFound", 1), "nested/README.md": readme,
		"x/p/doc.go": "// Package p is small.\n//\n// # Guarantees\n//\n// It keeps what\n// it got. It ends.\n//\n// # Other\n//\n// It is red.\npackage p\n",
	})
}

func TestPromisesNameTheirTests(t *testing.T) {
	r := small(t, rows+"| all is kept | `TestKept` |\n| elsewhere | `TestKept` in x/p, `TestFound` |\n| linked | [TestLost](../x/p/p_test.go) |\n| every suite | `suite.TestAll` |\n")
	got, problems := r.rows("nested/README.md")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := [][]test{
		{{"nested/q", "TestKept"}},
		{{"x/p", "TestKept"}, {"nested/q", "TestFound"}},
		{{"x/p", "TestLost"}},
		{{"nested/q", "TestKept"}, {"x/p", "TestKept"}},
	}
	for i, p := range got {
		if !slices.Equal(p.tests, want[i]) {
			t.Errorf("%s: %v, want %v", p.text, p.tests, want[i])
		}
	}
	if r.module("nested/q") != "nested" || r.module("x/p") != "." || !r.joined["nested"] || !r.joined["."] {
		t.Error(r.modules, r.joined)
	}
}

func TestRowsWithoutATestAreReported(t *testing.T) {
	for _, row := range []string{"| new | by hand |\n", "| new | `TestGone` |\n", "| new | `other.TestAll` |\n"} {
		if _, problems := small(t, rows+row).rows("nested/README.md"); len(problems) != 1 {
			t.Errorf("%s: %q", row, problems)
		}
	}
	if _, problems := small(t, "| promise | by |\n|---|---|\n| new | nothing |\n").rows("nested/README.md"); len(problems) != 0 {
		t.Error(problems)
	}
}

func TestClaimedSentences(t *testing.T) {
	r := small(t, "None here.\n<!-- claims -->\nIt is never\nlost. It is fast.\n<!-- /claims -->\nNor here.\n")
	for doc, want := range map[string][]string{
		"nested/README.md": {"It is never lost.", "It is fast."},
		"x/p/doc.go":       {"It keeps what it got.", "It ends."},
	} {
		if got := claimed(doc, r.raw[doc]); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", doc, got, want)
		}
	}
}

func TestProofsAreChecked(t *testing.T) {
	r := small(t, "It is never lost.\n")
	right := proof{id: "a", claims: []claim{{"nested/README.md", "It is never lost."}}, parts: []part{tests("x/p", "TestKept", "FuzzBytes")}}
	if problems := r.checkProofs([]*proof{&right}); len(problems) != 0 {
		t.Error(problems)
	}
	for name, change := range map[string]func(p *proof){
		"another sentence": func(p *proof) { p.claims = []claim{{"nested/README.md", "It is never seen."}} },
		"another document": func(p *proof) { p.claims = []claim{{"README.md", "It is never lost."}} },
		"no claim":         func(p *proof) { p.claims = nil },
		"another test":     func(p *proof) { p.parts = []part{tests("x/p", "TestFound")} },
	} {
		p := right
		change(&p)
		if problems := r.checkProofs([]*proof{&p}); len(problems) != 1 {
			t.Errorf("%s: %q", name, problems)
		}
	}
	if problems := r.checkProofs([]*proof{&right, &right}); len(problems) != 1 {
		t.Errorf("twice: %q", problems)
	}
}

// The claims of this repository and its proofs agree.
func TestRepository(t *testing.T) {
	r, err := open("../../..")
	if err != nil {
		t.Fatal(err)
	}
	proofs, promises, problems := r.collect()
	if len(problems) > 0 || len(proofs) < 10 || len(promises) < 70 {
		t.Errorf("%d proofs, %d promises, %q", len(proofs), len(promises), problems)
	}
	without := *proofs[0]
	without.claims = without.claims[1:]
	if n := len(r.unproved(append([]*proof{&without}, proofs[1:]...))); n != 1 {
		t.Errorf("%d sentences have no proof once one is taken away", n)
	}
}

const output = `=== RUN   TestKept
    p_test.go:5: wrong
    seeds.go:5: to repeat: IPALLOC_SEED=17
    seeds.go:6: tried: 12 rounds
--- FAIL: TestKept (0.00s)
=== RUN   TestLost
=== RUN   TestLost/part
    p_test.go:9: there is no moon
    --- SKIP: TestLost/part (0.00s)
--- PASS: TestLost (0.00s)
=== RUN   TestSkipped
    p_test.go:9: there is no sun
--- SKIP: TestSkipped (0.00s)
`

func newJob(k kind, names ...string) *job {
	return &job{part: part{kind: k, dir: "nested/q", tests: names, unit: "traces"}, module: "nested", result: result{tried: map[string]uint64{}, by: map[string]map[string]uint64{}, tests: map[string]outcome{}}}
}

func TestOutputIsRead(t *testing.T) {
	j := newJob(rounds, "TestKept")
	parse(j, output)
	r := j.result
	if r.tried["traces"] != 12 || r.tests["TestKept"].status != "failed" || r.tests["TestLost"].status != "passed" ||
		r.tests["TestSkipped"] != (outcome{"skipped", "there is no sun"}) || !slices.Equal(r.skipped, []string{"TestLost/part: there is no moon"}) {
		t.Errorf("%+v", r)
	}
	if got := amount(only(r, []string{"TestKept"})); got != "12 traces" {
		t.Errorf("TestKept: %s", got)
	}
	if got := amount(only(r, []string{"TestLost", "TestSkipped"})); got != "2 tests" {
		t.Errorf("the others: %s", got)
	}
	f := newJob(fuzzing, "FuzzBytes")
	parse(f, "fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\nfuzz: elapsed: 3s, execs: 1000 (300/sec), new interesting: 1 (total: 4)\nfuzz: elapsed: 6s, execs: 2345 (300/sec)\nPASS\n")
	if amount(f.result) != "2,345 traces" {
		t.Error(amount(f.result))
	}
}

func TestLineThatRepeats(t *testing.T) {
	b := &book{c: &config{length: time.Minute}, repo: small(t, "")}
	whole := newJob(once, "TestKept")
	whole.full = true
	for _, c := range []struct {
		j            *job
		output, want string
	}{
		{newJob(rounds, "TestKept"), output, "cd nested && IPALLOC_SEED=17 go test -count=1 -short -run='^TestKept$' ./q"},
		{newJob(rounds, "TestKept"), "panic", "cd nested && IPALLOC_SEED=3 go test -count=1 -short -run='^TestKept$' ./q"},
		{newJob(once, "TestKept", "TestLost"), output, "cd nested && go test -count=1 -short -run='^(TestKept)$' ./q"},
		{whole, output, "cd nested && go test -count=1 -run='^(TestKept)$' ./q"},
		{newJob(fuzzing, "FuzzBytes"), "To re-run:\ngo test -run=FuzzBytes/1a2b\n", "cd nested && go test -run=FuzzBytes/1a2b ./q"},
		{newJob(program), "", "cd nested && go run ./q -seed 3"},
	} {
		parse(c.j, c.output)
		if got := b.repeat(c.j, c.output, []string{"-seed", "3"}, 3); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestTimeIsShared(t *testing.T) {
	b := &book{c: &config{streams: 2}, deadline: time.Now().Add(time.Minute), running: map[*job]time.Time{}}
	var waiting []*job
	for _, w := range []int{0, 1, 2, 0, 2} {
		waiting = append(waiting, &job{part: part{kind: rounds, weight: w, least: time.Second}})
	}
	waiting = append([]*job{{part: part{kind: once}}}, waiting...)
	total := time.Duration(0)
	for {
		j, share := b.next(&waiting)
		if j == nil {
			break
		}
		if j.kind == once && share != 0 {
			t.Errorf("a fixed part has a share of %v", share)
		}
		total += share
	}
	if total > 2*time.Minute || total < 2*time.Minute-5*time.Second {
		t.Errorf("%v of 2 minutes are given away", total)
	}
	late := &book{c: &config{streams: 2}, deadline: time.Now().Add(-time.Minute), running: map[*job]time.Time{}}
	waiting = []*job{{part: part{kind: rounds, least: time.Second}}}
	if _, share := late.next(&waiting); share != time.Second {
		t.Errorf("late: %v", share)
	}
}

func TestPage(t *testing.T) {
	c := &config{length: time.Minute, streams: 2, seed: 5}
	r := small(t, rows+"| all is | kept | `TestKept` |\n")
	p := &proof{id: "a", method: "By trying.", claims: []claim{{"nested/README.md", "all is"}}, parts: []part{random("x/p", "TestKept", "traces"), tests("x/p", "TestLost"), {kind: program, dir: "x/p", from: time.Hour}}}
	b := newBook(c, r, []*proof{p}, []*promise{{"nested/README.md", "all is kept", []test{{"x/p", "TestLost"}}}})
	if len(b.jobs) != 2 {
		t.Fatalf("%d jobs", len(b.jobs))
	}
	for _, j := range b.jobs {
		j.result = newJob(once).result
		j.result.ran = true
		parse(j, output)
	}
	page := b.page()
	for _, want := range []string{
		"| all is | [nested/README.md](nested/README.md) | [a](#a) |", "### a\n\nBy trying.",
		"| [x/p](x/p) `TestKept` | 12 traces | skipped: TestLost/part: there is no moon; skipped: there is no sun |", "| [x/p](x/p) `TestLost` | 1 test | skipped: TestLost/part: there is no moon |",
		"it takes a run of 1h0m0s", "| all is kept | [x/p](x/p) `TestLost` | skipped: TestLost/part: there is no moon |", "| seed | 5 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in:\n%s", want, page)
		}
	}
}
