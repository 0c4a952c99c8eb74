// Package fails verifies that a suite of tests finds planted faults.
package fails

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// inside is set in the process that runs a suite.
const inside = "IPALLOC_TEST_FAILS"

// Want runs a suite in a separate process, because a failed test cannot be reset. It fails t unless at least one test of the
// suite matches the pattern and every matching test fails there. A test calls it once with the same t.
func Want(t *testing.T, pattern string, suite func(t *testing.T)) {
	t.Helper()
	if os.Getenv(inside) != "" {
		suite(t)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var run strings.Builder
	for _, name := range strings.Split(t.Name(), "/") {
		run.WriteString("^" + regexp.QuoteMeta(name) + "$/")
	}
	cmd := exec.Command(program, "-test.v", "-test.short", "-test.run", run.String()+pattern)
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	results := regexp.MustCompile(`(?m)^ *--- (\w+): `+regexp.QuoteMeta(t.Name())+`/([^/ ]+) `).FindAllStringSubmatch(string(out), -1)
	if err == nil || len(results) == 0 {
		t.Errorf("the suite does not fail: %v\n%s", err, out)
	}
	for _, r := range results {
		if r[1] != "FAIL" {
			t.Errorf("%s of the suite: %s", r[2], r[1])
		}
	}
}
