package bench

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// inlined are the functions of each package that the compiler must inline, because the hot paths
// call them for each ordinal, address or byte.
var inlined = map[string]string{
	"bitmap": `(*Bitmap).near (*Bitmap).tally (*Bitmap).check (*Bitmap).ready (*node).has (*node).set (*node).unset
		(*node).clearFrom (*node).slot (*node).holds (*node).mixed (*node).stale nonzero from through lowest`,
	"internal/addr": "U128.Addr4 U128.Addr6 U128.Cmp (*Codec).Last",
	"cidrset":       "hook.(*Queue[github.com/ipalloc/ipalloc/cidrset.Change]).Deliver",
}

// TestGuardInlining reads what the compiler says of its decisions.
func TestGuardInlining(t *testing.T) {
	for pkg, names := range inlined {
		out, err := exec.Command("go", "build", "-gcflags=-m", "../"+pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		can := map[string]bool{}
		for _, m := range regexp.MustCompile(` can inline (\S+)`).FindAllSubmatch(out, -1) {
			can[string(m[1])] = true
		}
		for _, name := range strings.Fields(names) {
			if !can[name] {
				t.Errorf("%s: %s is not inlined", pkg, name)
			}
		}
	}
}
