package prefixes

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// others are what another allocator does to furnished meanwhile.
var others = map[string]func(context.Context, *Allocator) error{
	"allocates": func(ctx context.Context, a *Allocator) error {
		_, err := a.Allocate(ctx, Request{Pool: prefix("fd00::/40"), Owner: "other", Bits: 64})
		return err
	},
	"releases": func(ctx context.Context, a *Allocator) error {
		return a.Release(ctx, prefix("fd00::/64"), "owner3")
	},
	"transfers": func(ctx context.Context, a *Allocator) error {
		_, err := a.Transfer(ctx, prefix("fd00::/64"), "owner3", "other")
		return err
	},
	"gives back": func(ctx context.Context, a *Allocator) error {
		return a.Release(ctx, prefix("10.0.0.0/32"), "owner2")
	},
	"divides": func(ctx context.Context, a *Allocator) error {
		_, err := a.Allocate(ctx, Request{Pool: prefix("10.0.0.0/20"), Owner: "other", Bits: 32})
		return err
	},
}

// hide makes the pages of fd00::/40 say that nothing is free in the pages below them, and removes the index entry of fd00::/64.
func hide(t *testing.T, s *store.Memory) {
	t.Helper()
	for _, rec := range records(t, s) {
		id, ok := parsePageKey(rec.Key)
		if ok && id.of() == prefix("fd00::/40") && id.depth() < 3 {
			p, err := decodePage(rec.Value, id)
			if err != nil {
				t.Fatal(err)
			}
			for slot := range 1 << pageBits {
				p = p.setRoom(slot, sizes{})
			}
			put(t, s, rec.Key, p.value())
		}
	}
	if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: ownerKey("owner3", prefix("fd00::/64")), Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
}

// TestChangesBetweenCallsOfTheStore: another allocator changes something before the k-th call of the store under every call, for
// every k. All records agree afterwards, those that Repair was restoring included.
func TestChangesBetweenCallsOfTheStore(t *testing.T) {
	for name, call := range calls {
		for does, change := range others {
			for k, met := 1, true; met; k++ {
				s, _ := furnished(t)
				if name == "Repair" {
					hide(t, s)
				}
				f := faults.NewFaulty(s)
				met = false
				f.Script(func(ctx context.Context, c faults.Call) faults.Outcome {
					if c.N == k {
						met = true
						if err := change(ctx, allocator(t, s)); err != nil && name != "Repair" {
							t.Errorf("%s, call %d: another one %s: %v", name, k, does, err)
						}
					}
					return faults.Outcome{}
				})
				err := call.do(t.Context(), allocator(t, f))
				f.Script(nil)
				if name == "Repair" && err != nil {
					t.Errorf("another one %s before call %d of Repair: %v", does, k, err)
				}
				rep, err := allocator(t, s).Check(t.Context())
				if err != nil || len(rep.Problems) > 0 {
					t.Errorf("another one %s before call %d of %s: %v, %v", does, k, name, rep, err)
				}
			}
		}
	}
}

// TestReadsOfATreeFail: whichever page of a tree can't be read, the call says so.
func TestReadsOfATreeFail(t *testing.T) {
	pool := prefix("fd00::/40")
	at := netip.PrefixFrom(prefix("fd00::5:0:0:0:0/64").Addr(), 64)
	for name, call := range map[string]func(tree) error{
		"take": func(tr tree) error { _, err := tr.take(prefix("fd00::7:0:0:0:0/64")); return err },
		"give": func(tr tree) error { return tr.give(at) },
		"find": func(tr tree) error { _, _, err := tr.find(24); return err },
		"free": func(tr tree) error { _, err := tr.free(); return err },
	} {
		for k, met := 1, true; met; k++ {
			pages := recorded{}
			if ok, err := (tree{pool, pages, &path{}}).take(at); !ok || err != nil {
				t.Fatal(ok, err)
			}
			before := fmt.Sprint(pages)
			f := &failing{recorded: pages, k: k}
			err := call(tree{pool, f, &path{}})
			met = f.reads >= k
			if (err != nil) != met {
				t.Errorf("%s: read %d of %d fails: %v", name, k, f.reads, err)
			}
			if name == "give" && !met && fmt.Sprint(pages) == before {
				t.Error("give changes nothing")
			}
		}
	}
}

// failing is pages of which the k-th read fails.
type failing struct {
	recorded
	k, reads int
}

func (f *failing) page(id pageID) (*pageCell, error) {
	if f.reads++; f.reads == f.k {
		return nil, faults.ErrInjected
	}
	return f.recorded.page(id)
}
