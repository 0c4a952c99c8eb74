package ipset

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
)

// A clock that no record can keep is refused by every call that depends on the time. The store stays as it was, and with a right
// clock all goes on.
func TestClockOutOfRange(t *testing.T) {
	p := poolOf("a", "10.0.0.0/26", 26)
	p.Cooldown = time.Minute
	w := newWorld(t, Config{}, p)
	a := w.assign(want("h", 2, "p")).V4[0].Address
	before, _ := w.store.MarshalBinary()
	leased := want("h", 1, "q")
	leased.TTL, leased.Request = time.Minute, "r"
	calls := map[string]func() error{
		"AutoAssign": func() error { _, err := w.AutoAssign(bg, leased); return err },
		"AssignIP": func() error {
			_, err := w.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.9"), Owner: HostOwner("h")})
			return err
		},
		"ReleaseByHandle": func() error { _, err := w.ReleaseByHandle(bg, "p"); return err },
		"ReleaseIPs":      func() error { _, err := w.ReleaseIPs(bg, Release{Address: a}); return err },
		"Decline":         func() error { _, err := w.Decline(bg, DeclineArgs{Address: a, For: time.Hour}); return err },
		"RemoveHost":      func() error { _, _, err := w.RemoveHost(bg, HostOwner("h")); return err },
		"Lookup":          func() error { _, err := w.Lookup(bg, a); return err },
		"IPsByHandle":     func() error { _, err := w.IPsByHandle(bg, "p"); return err },
		"IPsByHost":       func() error { _, err := w.IPsByHost(bg, HostOwner("h")); return err },
		"BlockOf":         func() error { _, err := w.Operator().BlockOf(bg, a); return err },
		"Utilization":     func() error { _, err := w.Utilization(bg); return err },
		"Sweep":           func() error { _, err := w.Operator().Sweep(bg, SweepArgs{IdleAfter: time.Hour}); return err },
		"Check":           func() error { _, err := w.Operator().Check(bg, nil); return err },
		"DryRun":          func() error { _, err := w.DryRun().ReleaseByHandle(bg, "p"); return err },
		"Collect": func() error {
			_, err := w.Operator().NewCollector(0).Collect(bg, func(Allocation) Liveness { return Gone })
			return err
		},
		"Allocations": func() error {
			for _, err := range w.Allocations(context.Background(), p.Prefix) {
				return err
			}
			return nil
		},
		"Blocks": func() error {
			for _, err := range w.Operator().Blocks(context.Background(), p.Prefix) {
				return err
			}
			return nil
		},
	}
	right := w.clock.now()
	for _, now := range []time.Time{{}, time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Date(2262, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w.clock.t = now
		for name, call := range calls {
			if err := call(); !errors.Is(err, ipalloc.ErrInvalid) {
				t.Errorf("%s at %v: %v", name, now, err)
			}
		}
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("a refused call wrote something")
	}
	for _, now := range []time.Time{time.Unix(0, 1), right, time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w.clock.t = now
		w.assign(leased)
		w.releaseHandle("q")
		w.check()
	}
}
