package bitmap_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Importing a set or an allocator of prefixes links the standard library and this
// module, and nothing else: no bit set, no IP set.
func TestImportsNothingOfOthers(t *testing.T) {
	const module = "github.com/ipalloc/ipalloc"
	for _, pkg := range []string{module + "/bitmap", module + "/cidrset"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		deps := strings.Fields(string(out))
		if !slices.Contains(deps, pkg) {
			t.Fatalf("the packages that %s needs are %v", pkg, deps)
		}
		for _, dep := range deps {
			if dep != module && !strings.HasPrefix(dep, module+"/") {
				t.Errorf("%s needs %s", pkg, dep)
			}
		}
	}
}
