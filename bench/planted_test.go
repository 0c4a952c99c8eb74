package bench

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// planted says that regressions are planted, which builds the packages once for each.
var planted = flag.Bool("planted", false, "plant regressions and see that the guard notices them, as make bench-planted does")

// A regression is a change of one file that makes a row more expensive.
type regression struct {
	name, row, file string
	old, now        string
	noticed         string // by which count; instructions if it is empty
}

var regressions = []regression{
	{"a map lookup in AllocateNext", "pair/size=2^16/full=50", "cidrset/allocate.go",
		"\ti, ok := s.busy.SetNextClear(s.cursor)\n", "\tif seen[s.cursor] {\n\t\tpanic(\"seen\")\n\t}\n\ti, ok := s.busy.SetNextClear(s.cursor)\n", ""},
	{"an allocation in AllocateNext", "pair/size=2^16/full=50", "cidrset/allocate.go",
		"\ti, ok := s.busy.SetNextClear(s.cursor)\n", "\tleak = make([]byte, 16)\n\ti, ok := s.busy.SetNextClear(s.cursor)\n", ""},
	{"the lock taken twice", "pair/size=2^16/full=50", "cidrset/allocate.go",
		"\ti, ok := s.busy.SetNextClear(s.cursor)\n", "\ts.mu.Unlock()\n\ts.mu.Lock()\n\ti, ok := s.busy.SetNextClear(s.cursor)\n", ""},
	{"the words of a page one by one", "pair/size=2^16/full=99.99", "bitmap/find.go",
		"\t\tif m := nd.room &^ (2<<c - 1); m != 0 {", "\t\tm := uint64(0)\n\t\tfor k := c + 1; k < fan; k++ {\n\t\t\tif nd.words[k] != ^uint64(0) {\n\t\t\t\tm = 1 << k\n\t\t\t\tbreak\n\t\t\t}\n\t\t}\n\t\tif m != 0 {", ""},
	{"no page by one load", "pair/size=2^20/full=50", "bitmap/flip.go",
		"\tif i := x >> pageBits; x <= b.last && i < uint64(len(b.pages)) {", "\tif i := x >> pageBits; x <= b.last && i < 0 {", ""},
	{"a closure and the time in Release", "pair/size=2^16/full=50", "cidrset/occupy.go",
		"\t\ts.mu.Lock()\n\t\twas := s.busy.Clear(i)\n", "\t\tnow := s.clock\n\t\tdefer func() { _ = now() }()\n\t\ts.mu.Lock()\n\t\twas := s.busy.Clear(i)\n", ""},
	{"a second look-up in Release", "pair/size=2^16/full=50", "cidrset/occupy.go",
		"\t\twas := s.busy.Clear(i)\n", "\t\twas := s.busy.Test(i) && s.busy.Clear(i)\n", ""},
	{"a small range by the way of long ones", "range/children=2^6", "bitmap/range.go",
		"\tif lo>>pageBits == hi>>pageBits && hi-lo < pageSize-1 {\n", "\tif lo>>pageBits == hi>>pageBits && hi-lo < 0 {\n", ""},
	{"summaries of all words after each flip", "stats/size=2^20", "bitmap/flip.go",
		"\t\tnd.stale(1 << c)\n", "\t\tnd.stale(^uint64(0))\n", ""},
	{"a scan over all owners in Registry.Allocate", "registry/allocate/owners=1000", "servicealloc/registry.go",
		"\trec, g, err := r.take(owner, req, false)\n", "\tfor range r.claims.holders {\n\t\tif owner == \"\" {\n\t\t\tbreak\n\t\t}\n\t}\n\trec, g, err := r.take(owner, req, false)\n", ""},
	{"a lock taken twice in Allocate of a node", "nodeipam/nodes=10", "cidrset/nodeipam/allocate.go",
		"\tdefer a.unlock()\n\to := a.ownerOf(&n)\n", "\tdefer a.unlock()\n\ta.mu.Unlock()\n\ta.mu.Lock()\n\to := a.ownerOf(&n)\n", "atomic instructions"},
	{"a second look-up in the store in Assign", "ipset/assign/release=handle", "ipset/assign.go",
		"\ta, err := e.assign.Assign(ctx,", "\t_, _ = e.IPsByHandle(ctx, handle)\n\ta, err := e.assign.Assign(ctx,", "lists"},
	{"an allocation in AutoAssign", "ipset/autoassign/release=address", "ipset/assign.go",
		"\tgot, err := e.assign.AutoAssign(ctx, &a)\n", "\tleak = make([]byte, 16)\n\tgot, err := e.assign.AutoAssign(ctx, &a)\n", "allocations"},
	{"a second digest of a request", "ipset/autoassign/request=key", "ipset/internal/assign/assign.go",
		"\tp.memo = record.Memo{", "\t_ = record.DigestOf(&p.AssignArgs, p.Named, p.Since)\n\tp.memo = record.Memo{", ""},
}

// TestPlantedRegressions plants each regression in a build of its own and sees the guard fail.
func TestPlantedRegressions(t *testing.T) {
	if !*planted {
		t.Skip("regressions are planted by make bench-planted")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			at := filepath.Join(root, r.file)
			data, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			if !strings.Contains(text, r.old) {
				t.Fatalf("%s has no longer\n%s", r.file, r.old)
			}
			text = strings.ReplaceAll(text, r.old, r.now) + "\nvar (\n\tseen map[uint64]bool\n\tleak []byte\n)\n"
			changed, overlay := filepath.Join(t.TempDir(), "changed.go"), filepath.Join(t.TempDir(), "overlay.json")
			list, err := json.Marshal(map[string]any{"Replace": map[string]string{at: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for path, text := range map[string][]byte{changed: []byte(text), overlay: list} {
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "TestGuard(Instructions|Trips)", "-v", ".", "-args", "-ratios", "-row", r.row)
			out, err := cmd.CombinedOutput()
			if r.noticed == "" {
				r.noticed = "instructions"
			}
			if err == nil || !strings.Contains(string(out), " "+r.noticed+", want at most") {
				t.Errorf("the guard does not notice it:\n%s", out)
			}
		})
	}
}
