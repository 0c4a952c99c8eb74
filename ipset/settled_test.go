package ipset

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// last returns the error that a sequence ends with.
func last[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
		if err == nil {
			continue
		}
	}
	return err
}

// settling are the calls of an engine, each in a form that may do nothing.
var settling = map[string]func(e *Engine) error{
	"AddPool":     func(e *Engine) error { return e.AddPool(bg, poolOf("q", "10.1.0.0/24", 28)) },
	"Allocations": func(e *Engine) error { return last(e.Allocations(bg, netip.Prefix{})) },
	"Assign":      func(e *Engine) error { _, err := e.Assign(bg, alloc.HostOwner("z"), "z"); return err },
	"AssignIP": func(e *Engine) error {
		_, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.200"), Owner: alloc.HostOwner("z")})
		return err
	},
	"AutoAssign": func(e *Engine) error { _, err := e.AutoAssign(bg, want("z", 1, "z")); return err },
	"BlockOf":    func(e *Engine) error { _, err := e.Operator().BlockOf(bg, ip("10.0.0.1")); return err },
	"Blocks":     func(e *Engine) error { return last(e.Operator().Blocks(bg, netip.Prefix{})) },
	"BlocksOf":   func(e *Engine) error { _, err := e.BlocksOf(bg, alloc.HostOwner("x")); return err },
	"Borrowings": func(e *Engine) error { return last(e.Operator().Borrowings(bg)) },
	"Changes": func(e *Engine) (err error) {
		for _, err = range e.Changes(bg, 0) {
			break
		}
		return err
	},
	"ChangePools": func(e *Engine) error {
		return e.Operator().ChangePools(bg, alloc.PoolChanges{Set: []alloc.Pool{poolOf("q", "10.1.0.0/24", 28)}})
	},
	"Check": func(e *Engine) error { _, err := e.Operator().Check(bg, nil); return err },
	"ClaimAffinity": func(e *Engine) error {
		_, _, err := e.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.240/28"), alloc.HostOwner("z"))
		return err
	},
	"Config": func(e *Engine) error { _, err := e.Operator().Config(bg); return err },
	"Decline": func(e *Engine) error {
		_, err := e.Decline(bg, alloc.DeclineArgs{Address: ip("10.0.0.9"), For: time.Hour})
		return ignore(err, ipalloc.ErrNotHeld)
	},
	"DisownBlocks": func(e *Engine) error {
		_, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("z")})
		return err
	},
	"Drain":          func(e *Engine) error { _, err := e.Operator().Drain(bg, "p"); return err },
	"DryRun":         func(e *Engine) error { _, err := e.DryRun().IPsByHandle(bg, "x"); return err },
	"EnsureBlock":    func(e *Engine) error { _, err := e.EnsureBlock(bg, want("z", 1, "z")); return err },
	"Explain":        func(e *Engine) error { _, err := e.Explain(bg, want("z", 1, "z")); return err },
	"Hosts":          func(e *Engine) error { _, err := e.Hosts(bg); return err },
	"IPsByAttribute": func(e *Engine) error { _, err := e.IPsByAttribute(bg, "user", "x"); return err },
	"IPsByShare":     func(e *Engine) error { _, err := e.IPsByShare(bg, "web"); return err },
	"AssignIPs": func(e *Engine) error {
		_, err := e.AssignIPs(bg, alloc.AssignArgs{Owner: alloc.HostOwner("z"), Handle: "z"}, ip("10.0.0.200"))
		return err
	},
	"Importer":    func(e *Engine) error { _, err := e.Operator().Importer().IPsByHandle(bg, "x"); return err },
	"OpenPool":    func(e *Engine) error { return e.Operator().OpenPool(bg, "p") },
	"Remembered":  func(e *Engine) error { return last(e.Operator().Remembered(bg)) },
	"IPsByHandle": func(e *Engine) error { _, err := e.IPsByHandle(bg, "x"); return err },
	"IPsByHost":   func(e *Engine) error { _, err := e.IPsByHost(bg, alloc.HostOwner("x")); return err },
	"ImportBlock": func(e *Engine) error {
		b, err := block.New(netip.MustParsePrefix("10.0.0.240/28"), block.Options{})
		if err != nil {
			return err
		}
		return e.Operator().ImportBlock(bg, b)
	},
	"InSpace": func(e *Engine) error {
		in, err := e.InSpace("s")
		return errors.Join(err, func() error { _, err := in.Pools(bg); return err }(), last(e.spaces.root.Operator().Spaces(bg)))
	},
	"Lookup":     func(e *Engine) error { _, err := e.Lookup(bg, ip("10.0.0.1")); return ignore(err, ipalloc.ErrNotHeld) },
	"MergePools": func(e *Engine) error { return e.Operator().MergePools(bg, "r", "p") },
	"NewCollector": func(e *Engine) error {
		_, err := e.Operator().NewCollector(0).Collect(bg, func(alloc.Allocation) alloc.Liveness { return alloc.Alive })
		return err
	},
	"Offer":         func(e *Engine) error { a := want("z", 1, "z"); a.TTL = time.Hour; _, err := e.Offer(bg, a); return err },
	"Pools":         func(e *Engine) error { _, err := e.Pools(bg); return err },
	"Reindex":       func(e *Engine) error { _, err := e.Operator().Reindex(bg, "p"); return err },
	"Release":       func(e *Engine) error { _, err := e.Release(bg, alloc.ReleaseArgs{Handle: "z"}); return err },
	"ReleaseByHost": func(e *Engine) error { _, err := e.ReleaseByHost(bg, alloc.HostOwner("z")); return err },
	"DisownBlocks of a prefix": func(e *Engine) error {
		_, err := e.DisownBlocks(bg, alloc.DisownArgs{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Owner: alloc.HostOwner("z")})
		return err
	},
	"ReleaseByHandle": func(e *Engine) error { _, err := e.ReleaseByHandle(bg, "z"); return err },
	"ReleaseIPs":      func(e *Engine) error { _, err := e.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.1")}); return err },
	"ReleasePool": func(e *Engine) error {
		_, err := e.DisownBlocks(bg, alloc.DisownArgs{Pool: "p", OnlyEmpty: true})
		return err
	},
	"RemoveHost": func(e *Engine) error { _, _, err := e.RemoveHost(bg, alloc.HostOwner("z")); return err },
	"RenameHost": func(e *Engine) error {
		_, _, err := e.Operator().RenameHost(bg, alloc.RenameArgs{From: alloc.HostOwner("z"), To: alloc.HostOwner("w")})
		return err
	},
	"Transfer": func(e *Engine) error {
		_, err := e.Transfer(bg, alloc.TransferArgs{From: "z", To: "w"})
		return err
	},
	"RemovePool":  func(e *Engine) error { return e.RemovePool(bg, "p") },
	"RemoveSpace": func(e *Engine) error { return e.spaces.root.Operator().RemoveSpace(bg, e.space) },
	"Renew": func(e *Engine) error {
		_, err := e.Renew(bg, "z", alloc.RenewArgs{TTL: time.Hour})
		return ignore(err, ipalloc.ErrNotHeld)
	},
	"RenewIP": func(e *Engine) error {
		_, err := e.RenewIP(bg, ip("10.0.0.9"), alloc.Guard{}, alloc.RenewArgs{TTL: time.Hour})
		return ignore(err, ipalloc.ErrNotHeld)
	},
	"Repair":       func(e *Engine) error { _, err := e.Operator().Repair(bg, nil); return err },
	"Reservations": func(e *Engine) error { _, err := e.Operator().Reservations(bg); return err },
	"Update": func(e *Engine) error {
		return ignore(e.Update(bg, alloc.UpdateArgs{Address: ip("10.0.0.9")}), ipalloc.ErrNotHeld)
	},
	"SetConfig":       func(e *Engine) error { return e.Operator().SetConfig(bg, alloc.Config{}) },
	"SetReservations": func(e *Engine) error { _, err := e.Operator().SetReservations(bg, nil); return err },
	"Spaces":          func(e *Engine) error { return last(e.spaces.root.Operator().Spaces(bg)) },
	"SplitPool":       func(e *Engine) error { return e.Operator().SplitPool(bg, "p", 1) },
	"Sweep":           func(e *Engine) error { _, err := e.Operator().Sweep(bg, alloc.SweepArgs{}); return err },
	"Withdraw":        func(e *Engine) error { _, err := e.Withdraw(bg, "z"); return err },
	"UpdatePool":      func(e *Engine) error { return e.UpdatePool(bg, poolOf("p", "10.0.0.0/24", 28)) },
	"Utilization":     func(e *Engine) error { _, err := e.Utilization(bg); return err },
}

// ignore returns err unless it is one of those.
func ignore(err error, those ...error) error {
	if slices.ContainsFunc(those, func(is error) bool { return errors.Is(err, is) }) {
		return nil
	}
	return err
}

// TestEveryCallSettles: a commit of unknown outcome that has not been made when the engine's next call answers is never made, whatever
// the call, in the space without a name and in another.
func TestEveryCallSettles(t *testing.T) {
	// Space and Operator read nothing, and Follow has no answer.
	for _, of := range []reflect.Type{reflect.TypeFor[*Engine](), reflect.TypeFor[*Operator]()} {
		for i := range of.NumMethod() {
			name := of.Method(i).Name
			if settling[name] == nil && !slices.Contains([]string{"Space", "Follow", "Operator"}, name) {
				t.Errorf("%s is missing", name)
			}
		}
	}
	for name, call := range settling {
		for _, space := range []string{"", "s"} {
			mem, late := store.NewMemory(), make(chan struct{})
			f := faults.NewFaulty(mem)
			e, err := New(f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if space == "" && (name == "RemoveSpace" || name == "InSpace") {
				continue
			}
			e = inSpace(t, e, space)
			p := poolOf("p", "10.0.0.0/24", 28)
			p.Index = []string{"user"}
			if err := e.AddPool(bg, p); err != nil {
				t.Fatal(err)
			}
			if _, err := e.AutoAssign(bg, want("y", 1, "y")); err != nil {
				t.Fatal(err)
			}
			f.Script(faults.AtCommit(1, faults.Late(late)))
			if _, err := e.AutoAssign(bg, want("x", 1, "x")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			if err := call(e); ignore(err, ipalloc.ErrInUse) != nil {
				t.Errorf("%s: %v", name, err)
			}
			before := fmt.Sprint(mem.List(bg, store.Range{}))
			close(late)
			f.Settle()
			if after := fmt.Sprint(mem.List(bg, store.Range{})); after != before {
				t.Errorf("%s in space %q: the lost commit was made after the answer", name, space)
			}
		}
	}
}
