package ipset_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestClosedPoolServesNoCall: a pool that is closed, and one that lies in it, serves no call, whichever way it asks; an importing engine
// and releases work. No change of the pool opens it but OpenPool.
func TestClosedPoolServesNoCall(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28, Closed: true}
	inner := alloc.Pool{Name: "inner", Prefix: netip.MustParsePrefix("10.0.0.128/28"), BlockBits: 28}
	host, at, in := alloc.HostOwner("h"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.129")
	bring := e.Operator().Importer()
	if err := errors.Join(e.AddPool(ctx, p), e.AddPool(ctx, inner)); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{at, in} {
		if _, err := bring.AssignIP(ctx, alloc.AssignIPArgs{Address: a, Owner: host, Handle: "held", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bring.AutoAssign(ctx, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "asked", Request: "key"}); err != nil {
		t.Fatal(err)
	}
	free := netip.MustParseAddr("10.0.0.40")
	calls := map[string]func(e *ipset.Engine) error{
		"Assign":   func(e *ipset.Engine) error { _, err := e.Assign(ctx, host, "new"); return err },
		"by name":  func(e *ipset.Engine) error { _, err := e.Assign(ctx, host, "new", "p"); return err },
		"nested":   func(e *ipset.Engine) error { _, err := e.Assign(ctx, host, "new", "inner"); return err },
		"existing": func(e *ipset.Engine) error { _, err := e.Assign(ctx, host, "held"); return err },
		"request": func(e *ipset.Engine) error {
			_, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "asked", Request: "key"})
			return err
		},
		"wish": func(e *ipset.Engine) error {
			_, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "new", Choose: alloc.Prefer(free)})
			return err
		},
		"AssignIP": func(e *ipset.Engine) error {
			_, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: free, Owner: host, Handle: "new"})
			return err
		},
		"AssignIP of the holder": func(e *ipset.Engine) error {
			_, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: at, Owner: host, Handle: "held"})
			return err
		},
		"AssignIP with Automatic": func(e *ipset.Engine) error {
			_, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: at, Owner: host, Handle: "held", WithinRules: true})
			return err
		},
		"Offer": func(e *ipset.Engine) error {
			_, err := e.Offer(ctx, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "held", TTL: time.Hour})
			return err
		},
		"Renew": func(e *ipset.Engine) error {
			_, err := e.Renew(ctx, "held", alloc.RenewArgs{TTL: 2 * time.Hour})
			return err
		},
		"RenewIP": func(e *ipset.Engine) error {
			_, err := e.RenewIP(ctx, in, alloc.Guard{Handle: "held"}, alloc.RenewArgs{TTL: time.Hour})
			return err
		},
		"EnsureBlock": func(e *ipset.Engine) error {
			_, err := e.EnsureBlock(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("other"), Num4: 1})
			return err
		},
		"ClaimAffinity": func(e *ipset.Engine) error {
			_, failed, err := e.ClaimAffinity(ctx, netip.MustParsePrefix("10.0.0.64/28"), host)
			if len(failed) > 0 {
				return failed[0].Err
			}
			return err
		},
	}
	refused := func(state string) {
		t.Helper()
		for name, call := range calls {
			if err := call(e.DryRun()); !errors.Is(err, ipalloc.ErrReserved) && !errors.Is(err, ipalloc.ErrNotFound) {
				t.Errorf("%s: %s: %v", state, name, err)
			}
		}
	}
	refused("closed")
	p.Closed = false
	grown := p
	grown.Prefix = netip.MustParsePrefix("10.0.0.0/23")
	for name, err := range map[string]error{
		"AddPool": e.AddPool(ctx, p), "UpdatePool": e.UpdatePool(ctx, p), "ChangePools": e.Operator().ChangePools(ctx, alloc.PoolChanges{Set: []alloc.Pool{grown}}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		refused("after " + name)
	}
	if err := errors.Join(e.Operator().SplitPool(ctx, "p", 1), e.Operator().MergePools(ctx, "p", "p-0", "p-1")); err != nil {
		t.Fatal(err)
	}
	refused("split and merged")
	for name, call := range calls {
		if err := call(bring.DryRun()); err != nil {
			t.Errorf("importing: %s: %v", name, err)
		}
	}
	if _, err := e.DryRun().ReleaseByHandle(ctx, "held"); err != nil {
		t.Error(err)
	}
	if err := e.Operator().OpenPool(ctx, "p"); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(e.DryRun()); err != nil {
			t.Errorf("open: %s: %v", name, err)
		}
	}
	if err := e.Operator().OpenPool(ctx, "none"); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Error(err)
	}
}

// An importer releases a keeper that an earlier import has brought; no other engine does.
func TestImporterReleasesKeepers(t *testing.T) {
	ctx := t.Context()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), Closed: true}); err != nil {
		t.Fatal(err)
	}
	at, bring := netip.MustParseAddr("10.0.0.9"), e.Operator().Importer()
	if _, err := bring.AssignIP(ctx, alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner("h"), Handle: "kept/x", Share: alloc.Share{Max: 2, Key: "kept/x"}}); err != nil {
		t.Fatal(err)
	}
	release := alloc.Release{Address: at, Guard: alloc.Guard{Handle: "kept/x"}}
	if _, err := e.ReleaseIPs(ctx, release); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
	if got, err := bring.ReleaseIPs(ctx, release); err != nil || got[0].Outcome != alloc.Released {
		t.Errorf("%+v, %v", got, err)
	}
}
