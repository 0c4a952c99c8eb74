package main

import (
	"slices"
	"testing"
	"time"
)

// The claims of this repository and its proofs agree, and a claim without a proof is reported.
func TestRepository(t *testing.T) {
	r, err := open("../../..")
	if err != nil {
		t.Fatal(err)
	}
	proofs, problems := r.table(proofsText)
	rows, bad := r.promises()
	if problems = slices.Concat(problems, bad, r.unproved(proofs)); len(problems) > 0 || len(proofs) < 10 || len(rows) < 70 {
		t.Errorf("%d proofs, %d promises, %q", len(proofs), len(rows), problems)
	}
	r.documents["x/doc.go"] = "Package x.\n\n# Guarantees\n\nIt is never lost.\n\n# Other\n"
	r.documents["x/README.md"] = "| promise | test |\n|---|---|\n| kept | by hand |\n| gone | `TestGone` |\n| there | `TestRepository` in internal/tools/prove |\n"
	if n := len(r.unproved(proofs)); n != 1 {
		t.Errorf("%d sentences without a proof", n)
	}
	if _, bad := r.promises(); len(bad) != 2 {
		t.Errorf("rows without tests: %q", bad)
	}
	if _, bad := r.table("proof a b\nclaim README.md It is red.\ntest x TestGone\n"); len(bad) != 2 {
		t.Errorf("wrong lines: %q", bad)
	}
}

func TestOutputIsRead(t *testing.T) {
	j := newJob([]string{"random", "x/y", "TestKept", "-n=2", "long", "traces"})
	ran := j.parse("    p.go:5: tried: 12 rounds\n--- PASS: TestKept (0.00s)\n    p.go:9: there is no sun\n--- SKIP: TestSkipped (0.00s)\n")
	if !ran["TestKept"] || j.passed != 1 || j.tried["long traces"] != 12 || !slices.Equal(j.skipped, []string{"TestSkipped: there is no sun"}) {
		t.Errorf("%+v", j)
	}
	if words := j.command(time.Second, 7, true); words[0] != "IPALLOC_SEED=7" || !slices.Contains(words, "-n=2") || !slices.Contains(words, "-short") {
		t.Error(words)
	}
}
