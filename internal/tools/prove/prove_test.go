package main

import (
	"slices"
	"testing"
	"time"
)

// The claims of this repository and its proofs agree, and a claim without a proof is reported.
func TestRepository(t *testing.T) {
	b, err := open("../../..")
	if err != nil {
		t.Fatal(err)
	}
	b.table(proofsText)
	b.unproved()
	b.promised()
	if len(b.problems) > 0 || len(b.proofs) < 10 || b.promises < 70 {
		t.Errorf("%d proofs, %d promises, %q", len(b.proofs), b.promises, b.problems)
	}
	b.documents["x/doc.go"] = "Package x.\n\n# Guarantees\n\nIt is never lost.\n\n# Other\n"
	b.documents["x/README.md"] = "| promise | test |\n|---|---|\n| kept | by hand |\n| gone | `TestGone` |\n| there | `TestRepository` in internal/tools/prove |\n"
	for name, f := range map[string]struct {
		find func()
		want int
	}{
		"a sentence without a proof": {b.unproved, 1},
		"rows without tests":         {b.promised, 3}, // TestGone is of no package, and its row has no other
		"wrong lines":                {func() { b.table("proof a b\nclaim README.md It is red.\ntest x TestGone\n") }, 2},
	} {
		b.problems = nil
		f.find()
		if len(b.problems) != f.want {
			t.Errorf("%s: %q", name, b.problems)
		}
	}
}

func TestOutputIsRead(t *testing.T) {
	j := newJob([]string{"random", "x/y", "TestKept", "-n=2", "long", "traces"})
	ran := j.parse("    p.go:5: tried: 12 rounds\n--- PASS: TestKept (0.00s)\n    p.go:9: there is no sun\n--- SKIP: TestSkipped (0.00s)\n")
	if !ran["TestKept"] || j.passed != 1 || j.tried["long traces"] != 12 || !slices.Equal(j.skipped, []string{"TestSkipped"}) {
		t.Errorf("%+v", j)
	}
	if words := j.command(time.Second, 7, true); words[0] != "IPALLOC_SEED=7" || !slices.Contains(words, "-n=2") || !slices.Contains(words, "-short") {
		t.Error(words)
	}
}
