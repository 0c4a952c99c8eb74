package main

import (
	"regexp"
	"strings"
	"testing"
)

// What is carried out is what was shown: under the word of a plan another plan is refused, and nothing is repaired without it.
func TestRepairIsWhatWasPlanned(t *testing.T) {
	name := newBolt(t, cluster(t))
	path := strings.TrimPrefix(name, "bolt://")
	damage(t, path)
	env := map[string]string{"IPAMCTL_STORE": name}
	plan := func() string {
		t.Helper()
		status, _, stderr := call(t, env, "repair", "--dry-run")
		word := regexp.MustCompile(`--same (\w+)`).FindStringSubmatch(stderr)
		if status != exitFindings || word == nil {
			t.Fatalf("status %d: %s", status, stderr)
		}
		return word[1]
	}
	first := plan()
	if again := plan(); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	damageBlock(t, path)
	second := plan()
	if second == first {
		t.Fatal("two plans have one word")
	}
	before := contents(t, name)
	if status, _, stderr := call(t, env, "repair", "--yes", "--same", first); status != exitConflict || !strings.Contains(stderr, second) {
		t.Errorf("status %d: %s", status, stderr)
	}
	if status, out, stderr := call(t, env, "repair"); status != exitRefused || !strings.Contains(out, "STEP") {
		t.Errorf("the question comes before the steps: status %d: %s%s", status, out, stderr)
	}
	if contents(t, name) != before {
		t.Error("a refused repair has changed the store")
	}
	if status, _, stderr := call(t, env, "repair", "--dry-run", "--same", second); status != exitUsage {
		t.Errorf("status %d: %s", status, stderr)
	}
	if status, _, stderr := call(t, env, "repair", "--yes", "--same", second); status != exitOK {
		t.Errorf("status %d: %s", status, stderr)
	}
	if status, out, stderr := call(t, env, "repair", "--dry-run"); status != exitOK {
		t.Errorf("status %d: %s%s", status, out, stderr)
	}
}
