package record

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestDigestIsOfThePrintedArguments compares the digest with a digest of how package fmt prints each argument, with %v, or %q if it holds
// strings. Stored memos have the digest. Every argument changes it, except the key itself and what a call does beside its assignment.
func TestDigestIsOfThePrintedArguments(t *testing.T) {
	attributes, _ := alloc.NewAttributes(map[string]string{"app": "web", "zone": ""})
	named := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	set := []func(a *alloc.AssignArgs){
		func(a *alloc.AssignArgs) { a.WithinRules = true },
		func(a *alloc.AssignArgs) { a.Owner = alloc.HostOwner("h") },
		func(a *alloc.AssignArgs) { a.Owner = alloc.VirtualOwner("v") },
		func(a *alloc.AssignArgs) { a.Num4, a.Num6 = 1, 4096 },
		func(a *alloc.AssignArgs) { a.Handle = "pod \x01" },
		func(a *alloc.AssignArgs) { a.Attributes = attributes },
		func(a *alloc.AssignArgs) { a.Share.Max = 2 },
		func(a *alloc.AssignArgs) { a.Share.Key = "vip" },
		func(a *alloc.AssignArgs) { a.TTL = 90 * time.Minute },
		func(a *alloc.AssignArgs) { a.Use = alloc.Workload },
		func(a *alloc.AssignArgs) { a.Use |= alloc.LoadBalancer | 64 },
		func(a *alloc.AssignArgs) { a.Namespace = map[string]string{"k": "v", "a b": "c"} },
		func(a *alloc.AssignArgs) { a.Namespace = map[string]string{} },
		func(a *alloc.AssignArgs) { a.Pools = []string{"b c", "a"} },
		func(a *alloc.AssignArgs) { a.Selectors = true },
		func(a *alloc.AssignArgs) { a.Blocks.Max = -1 },
		func(a *alloc.AssignArgs) { a.Blocks.Head, a.Blocks.Tail = 1, 1<<64-1 },
		func(a *alloc.AssignArgs) { a.Partial = true },
		func(a *alloc.AssignArgs) { a.Sticky = true },
		func(a *alloc.AssignArgs) { a.Choose = alloc.Prefer(named[1]) },
		func(a *alloc.AssignArgs) { a.Choose = alloc.Aligned() },
	}
	exempt := []string{"Existing", "Request", "Also"} // Existing excludes Request; rows are written once with the answer
	for field := range reflect.TypeFor[alloc.AssignArgs]().NumField() {
		name := reflect.TypeFor[alloc.AssignArgs]().Field(field).Name
		changed := slices.ContainsFunc(set, func(f func(*alloc.AssignArgs)) bool {
			var a alloc.AssignArgs
			f(&a)
			return !reflect.ValueOf(a).Field(field).IsZero() && DigestOf(&a, nil, time.Time{}) != DigestOf(&alloc.AssignArgs{}, nil, time.Time{})
		})
		if changed == slices.Contains(exempt, name) {
			t.Errorf("%s changes the digest: %v", name, changed)
		}
	}
	for i := range set {
		for j := range set {
			var a alloc.AssignArgs
			set[i](&a)
			set[j](&a)
			for _, at := range [][]netip.Addr{nil, {}, named} {
				if got, want := DigestOf(&a, at, time.Time{}), printed(&a, at); got != want {
					t.Errorf("%+v, %v: %x, want %x", a, at, got, want)
				}
			}
		}
	}
}

func printed(a *alloc.AssignArgs, named []netip.Addr) string {
	call := "auto"
	if a.WithinRules {
		call = "within rules"
	}
	h := sha256.New()
	for _, arg := range []any{
		call, a.Owner, a.Num4, a.Num6, a.Handle, a.Attributes, a.Share, int64(a.TTL), a.Use, a.Namespace,
		slices.Sorted(slices.Values(a.Pools)), a.Selectors, a.Blocks, a.Partial, a.Sticky, a.Choose, named,
	} {
		format := "%v"
		switch arg.(type) {
		case []string, map[string]string:
			format = "%q"
		}
		s := fmt.Sprintf(format, arg)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return string(h.Sum(nil)[:16])
}
