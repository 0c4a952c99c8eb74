package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page returns PROOF.md.
func (b *book) page() string {
	var w strings.Builder
	fmt.Fprintf(&w, `# Proofs

What the documents of this repository claim, what stands behind each claim, and what one run of it found. `+"`make prove`"+` wrote this
page. Run it yourself, for as long as you like: `+"`make prove PROVE=1h`"+`. Each run draws new seeds; what it finds comes with the line
that repeats it. No test here is a proof in the sense of logic: it says how much was tried and that nothing was found.

| run | |
|---|---|
`)
	for _, row := range b.about() {
		fmt.Fprintf(&w, "| %s | %s |\n", row[0], row[1])
	}
	fmt.Fprint(&w, "\n## Claims\n\n| claim | made in | proved by |\n|---|---|---|\n")
	for _, c := range b.claims() {
		fmt.Fprintf(&w, "| %s | [%s](%s) | %s |\n", cell(c.sentence), c.document, c.document, strings.Join(b.provers(c), ", "))
	}
	fmt.Fprint(&w, "\n## Proofs\n")
	for _, p := range b.proofs {
		fmt.Fprintf(&w, "\n### %s\n\n%s\n\n| where | tried | found |\n|---|---|---|\n", p.id, p.method)
		for i, j := range b.of[p] {
			where, did, found := b.row(p.parts[i], j)
			fmt.Fprintf(&w, "| %s | %s | %s |\n", where, did, found)
		}
	}
	if len(b.promises) > 0 {
		fmt.Fprint(&w, "\n## Promises and laws\n\nThe tables of promises and laws in the documents name their tests; these are their rows.\n")
		b.tables(&w)
	}
	return w.String()
}

// about is when and where the page was made.
func (b *book) about() [][2]string {
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = b.repo.top
		out, _ := cmd.Output()
		return strings.TrimSpace(string(out))
	}
	commit := "`" + git("rev-parse", "--short=12", "HEAD") + "`"
	if git("status", "--porcelain", "--untracked-files=no") != "" {
		commit += " with changes"
	}
	goVersion, _ := exec.Command("go", "env", "GOVERSION").Output()
	tests := 0
	for _, j := range b.jobs {
		tests += len(j.result.tests)
	}
	return [][2]string{
		{"date", b.began.UTC().Format("2006-01-02 15:04 UTC")},
		{"commit", commit},
		{"Go", strings.TrimSpace(string(goVersion))},
		{"machine", fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor())},
		{"length", fmt.Sprintf("%v asked for, %v taken, %d proofs side by side", b.c.length, b.took.Round(time.Second), b.c.streams)},
		{"seed", strconv.FormatUint(b.c.seed, 10)},
	}
}

// processor names the model, where the system says it.
func processor() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`).FindStringSubmatch(string(data)); m != nil {
		return m[1]
	}
	return "model unknown"
}

// claims returns all claims, each once, in the order of the documents.
func (b *book) claims() (out []claim) {
	for _, p := range b.proofs {
		for _, c := range p.claims {
			if !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y claim) int {
		return strings.Compare(strings.TrimPrefix(x.document, "README.md"), strings.TrimPrefix(y.document, "README.md"))
	})
	return out
}

// provers links the proofs of a claim.
func (b *book) provers(c claim) (out []string) {
	for _, p := range b.proofs {
		if slices.Contains(p.claims, c) {
			out = append(out, fmt.Sprintf("[%s](#%s)", p.id, p.id))
		}
	}
	return out
}

// row returns where a part is, what it tried, and what it found.
func (b *book) row(p part, j *job) (where, did, found string) {
	switch {
	case p.kind == program:
		where = link(p.dir) + " `" + strings.Join(p.args, " ") + "`"
	case p.kind == target:
		where = "`make " + strings.Join(p.args, " ") + "`"
	case len(p.tests) == 0:
		where = link(p.dir) + ", all tests"
	default:
		where = link(p.dir) + " `" + strings.Join(p.tests, "`, `") + "`"
	}
	if p.kind == target && j.result.ran {
		did = "all tests, " + j.result.took.Round(time.Second).String()
	}
	r := j.result
	if p.kind == once {
		r = only(j.result, p.tests)
	}
	if did == "" {
		did = amount(r)
	}
	if !j.result.ran {
		did = "nothing: it takes a run of " + p.from.String()
		if p.from <= b.c.length {
			did = "nothing: it was not built"
		}
	}
	return where, did, verdict(r)
}

// only is the part of a result that is about some tests; all of it without names.
func only(r result, names []string) result {
	if len(names) == 0 {
		return r
	}
	out := result{ran: r.ran, tried: map[string]uint64{}, tests: map[string]outcome{}, took: r.took}
	for _, name := range names {
		for unit, n := range r.by[name] {
			out.tried[unit] += n
		}
		if o, ok := r.tests[name]; ok {
			out.tests[name] = o
		}
	}
	for _, s := range r.skipped {
		if test, _, _ := strings.Cut(s, "/"); slices.Contains(names, test) {
			out.skipped = append(out.skipped, s)
		}
	}
	if len(out.tests) < len(names) || slices.ContainsFunc(names, func(n string) bool { return r.tests[n].status == "failed" }) {
		out.failed = r.failed
	}
	return out
}

// amount says how much a result tried.
func amount(r result) string {
	var out []string
	for _, u := range units(r.tried) {
		if n := r.tried[u]; n > 0 {
			out = append(out, thousands(n)+" "+u)
		}
	}
	if len(out) == 0 {
		out = append(out, plural(uint64(len(r.tests)), "test"))
	}
	return strings.Join(out, ", ")
}

// verdict says what a result found.
func verdict(r result) string {
	var out []string
	for _, f := range r.failed {
		what, _, _ := strings.Cut(f.what, "\n")
		out = append(out, "**"+cell(what)+"**, to repeat: `"+f.repeat+"`")
	}
	for _, s := range r.skipped {
		out = append(out, "skipped: "+cell(s))
	}
	seen := map[string]bool{}
	for _, name := range sortedNames(r.tests) {
		if o := r.tests[name]; o.status == "skipped" && !seen[o.reason] {
			seen[o.reason] = true
			out = append(out, "skipped: "+cell(o.reason))
		}
	}
	if len(out) == 0 && r.ran {
		return "nothing"
	}
	return strings.Join(out, "; ")
}

func sortedNames(tests map[string]outcome) []string {
	names := make([]string, 0, len(tests))
	for name := range tests {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func summary(r result) string {
	if len(r.failed) > 0 {
		return "FOUND SOMETHING"
	}
	return amount(r)
}

// tables writes the promises, a table for each document.
func (b *book) tables(w *strings.Builder) {
	document := ""
	for _, p := range b.promises {
		if p.document != document {
			document = p.document
			fmt.Fprintf(w, "\n### %s\n\n| promise | tests | found |\n|---|---|---|\n", document)
		}
		var where, found []string
		for _, t := range p.tests {
			where = append(where, link(t.dir)+" `"+t.name+"`")
			if v := verdict(only(b.packages[t.dir+" "].result, []string{t.name})); !slices.Contains(found, v) {
				found = append(found, v)
			}
		}
		if len(found) > 1 {
			found = slices.DeleteFunc(found, func(s string) bool { return s == "nothing" })
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", cell(p.text), strings.Join(where, ", "), strings.Join(found, "; "))
	}
}

// link is a link to a directory.
func link(dir string) string { return "[" + path.Clean(dir) + "](" + path.Clean(dir) + ")" }

// cell is text for a cell of a table: its links are left out, because they lead from its own document.
func cell(text string) string {
	text = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	return strings.ReplaceAll(flat(text), "|", `\|`)
}

// plural counts things.
func plural(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

// thousands is n with commas.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
