package ipset

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An engine that knows a block and not its addresses meets what another engine did to one of them meanwhile: it reads both again.
func TestAddressesOfAStaleBlock(t *testing.T) {
	for _, change := range []string{"released", "given to another", "moved"} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		al := w.assign(want("h", 1, "p")).V4[0]
		e := w.engine(w.store)
		if _, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil { // knows the block, and q alone
			t.Fatal(err)
		}
		if change == "moved" {
			to := alloc.HostOwner("other")
			if err := w.Update(bg, alloc.UpdateArgs{Address: al.Address, Host: &to}); err != nil {
				t.Fatal(err)
			}
		} else {
			w.releaseHandle("p")
		}
		if change == "given to another" {
			if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: al.Address, Owner: alloc.HostOwner("h"), Handle: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string]alloc.Outcome{"released": alloc.WasFree, "given to another": alloc.OwnerChanged, "moved": alloc.Released}[change]
		res, err := e.ReleaseIPs(bg, alloc.Release{Address: al.Address, Guard: alloc.Guard{Handle: "p", Seq: al.Seq}})
		if err != nil || res[0].Outcome != want {
			t.Errorf("%s: %v, %v, want %v", change, res, err, want)
		}
	}
}

// An address record that does not go with its block is an error of the call that needs it, and Check finds it; other addresses of
// the block are served.
func TestAddressRecordThatDoesNotFit(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	for name, a := range map[string]block.Address{
		"cooling":   {Holder: block.Holder{Seq: 1 << pool.GenShift, Until: 1}, Cooling: true},
		"too young": {Holder: block.Holder{Seq: 1 << 60}},
	} {
		w := newWorld(t, alloc.Config{}, p)
		w.leaves()
		al := w.assign(want("h", 1, "p")).V4[0]
		w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: record.AddressKey(al.Address), Value: string(a.Append(nil, 28)), Expect: store.AnyRevision}})
		e := w.engine(w.store)
		if _, err := e.ReleaseIPs(bg, alloc.Release{Address: al.Address}); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: release: %v", name, err)
		}
		for i := range 15 {
			if _, err := e.AutoAssign(bg, want("h", 1, fmt.Sprint("q", i))); err != nil {
				t.Errorf("%s: assign: %v", name, err)
			}
		}
		if rep, err := e.Operator().Check(bg, nil); err != nil || len(rep.Problems) == 0 {
			t.Errorf("%s: Check found nothing, %v", name, err)
		}
	}
}
