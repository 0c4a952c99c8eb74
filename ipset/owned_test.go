package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The record of an owner lists few blocks and counts many. These tests are about owners around that number.

// TestClaimOfManyBlocksWritesNoMore: what a claim writes does not grow with the blocks that the owner has.
func TestClaimOfManyBlocksWritesNoMore(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/16", 32))
	s := faults.NewFaulty(w.store)
	e := w.engine(s)
	written := make(map[int]faults.Counts)
	for n := range 2001 {
		s.Reset()
		if _, err := e.AutoAssign(bg, want("h", 1, fmt.Sprintf("pod-%05d", n))); err != nil {
			t.Fatal(err)
		}
		written[n] = s.Counts()
	}
	few, many := written[20], written[2000]
	if many.Values > few.Values || many.Written > few.Written {
		t.Errorf("a claim writes %d records and %d bytes for an owner of 2,000 blocks, %d and %d for one of 20", many.Written, many.Values, few.Written, few.Values)
	}
	for n, c := range written {
		if c.Values > 600 || c.Written > few.Written+2 { // a page of a pool above becomes full
			t.Errorf("the claim beside %d blocks writes %d records and %d bytes", n, c.Written, c.Values)
		}
	}
}

// TestLimitsOfManyBlocks: the limits of an owner and of a pool hold for owners of few and of many blocks, in another pool or in the
// same, for engines that know the owner and for new ones.
func TestLimitsOfManyBlocks(t *testing.T) {
	for _, tt := range []struct{ other, limit int }{{0, 3}, {10, 55}, {60, 4}, {60, 5}, {63, 2}, {64, 1}, {65, 3}, {80, 70}} {
		for _, cold := range []bool{false, true} {
			limited := poolOf("a", "10.0.0.0/24", 32)
			limited.MaxBlocksPerHost = tt.limit
			w := newWorld(t, alloc.Config{}, limited, poolOf("b", "10.0.1.0/24", 32), poolOf("c", "10.0.0.0/28", 32))
			e := w.Engine
			take := func(pool string) error {
				if cold {
					e = w.engine(w.store)
				}
				a := want("h", 1, "p")
				a.Pools, a.Partial = []string{pool}, false
				_, err := e.AutoAssign(bg, a)
				return err
			}
			for range tt.other {
				if err := take("b"); err != nil {
					t.Fatal(err)
				}
			}
			if err := take("c"); err != nil { // in the prefix of a, and not of it
				t.Fatal(err)
			}
			n := 0
			for n <= tt.limit && take("a") == nil {
				n++
			}
			if err := take("a"); n != tt.limit || !errors.Is(err, ipalloc.ErrLimit) {
				t.Errorf("%+v, cold %v: %d blocks of the limited pool, then %v", tt, cold, n, err)
			}
			if _, failed, err := e.ClaimAffinity(bg, netip.MustParsePrefix("10.0.0.255/32"), alloc.HostOwner("h")); err != nil || len(failed) != 1 || !errors.Is(failed[0].Err, ipalloc.ErrLimit) {
				t.Errorf("%+v, cold %v: a claim by hand: %v, %v", tt, cold, failed, err)
			}
			if all := w.blocksOf("h"); len(all) != tt.other+1+tt.limit || !slices.IsSortedFunc(all, record.ComparePrefix) {
				t.Errorf("%+v, cold %v: %d blocks %v", tt, cold, len(all), all)
			}
		}
	}
}

// TestManyBlocksBecomeFew: an owner gives up blocks, some in one commit, until few are left and none is, and gets others meanwhile.
func TestManyBlocksBecomeFew(t *testing.T) {
	for _, limits := range []store.Limits{{}, {Ops: 127}, {Ops: 24}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 32))
		e := w.engine(limitedStore{w.store, limits})
		claim := func(p string) {
			if _, failed, err := e.ClaimAffinity(bg, netip.MustParsePrefix(p), alloc.HostOwner("h")); err != nil || len(failed) > 0 {
				t.Fatal(failed, err)
			}
		}
		claim("10.0.0.0/25")
		left := 128
		for _, give := range []string{"10.0.0.0/27", "10.0.0.32/28", "10.0.0.48/29", "10.0.0.56/30", "10.0.0.60/30", "10.0.0.64/32", "10.0.0.65/32", "10.0.0.66/31", "10.0.0.96/27"} {
			p := netip.MustParsePrefix(give)
			gone, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), Prefix: p})
			left -= 1 << (32 - p.Bits())
			if blocks := w.blocksOf("h"); err != nil || len(gone) != 1<<(32-p.Bits()) || len(blocks) != left {
				t.Fatalf("%+v: gave up %v, %v; %d blocks are left, want %d", limits, gone, err, len(blocks), left)
			}
			w.check()
		}
		claim("10.0.0.0/25")
		if _, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h")}); err != nil || len(w.blocksOf("h")) != 0 || w.records(record.KindOwner) != 0 {
			t.Errorf("%+v: %v, %d records of owners are left", limits, err, w.records(record.KindOwner))
		}
	}
}

// limitedStore is a store with other limits.
type limitedStore struct {
	store.Store
	limits store.Limits
}

func (s limitedStore) Limits() store.Limits { return s.limits }

// TestOwnersRaceAtTheLimit: several engines, each with a cache of its own, give one owner blocks and take them, around the number up
// to which blocks are listed. The limit of blocks is never passed, and the records are right after each round.
func TestOwnersRaceAtTheLimit(t *testing.T) {
	const limit = record.MaxListed + 2
	w := newWorld(t, alloc.Config{MaxBlocksPerHost: limit}, poolOf("a", "10.0.0.0/25", 32))
	engines := []*Engine{w.Engine, w.engine(w.store), w.engine(w.store)}
	for round := range 30 {
		var wg sync.WaitGroup
		for i, e := range engines {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for k := range 8 {
					at := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte((round*7 + i*41 + k*13) % 128)}), 32)
					var err error
					if (round+i)%3 > 0 {
						_, _, err = e.ClaimAffinity(bg, at, alloc.HostOwner("h"))
					} else {
						_, err = e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), Prefix: at})
					}
					if err != nil && !errors.Is(err, ipalloc.ErrConflict) {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait()
		if n := len(w.blocksOf("h")); n > limit {
			t.Fatalf("round %d: %d blocks, at most %d", round, n, limit)
		}
		w.check()
	}
}

// TestDamagedRecordsOfManyBlocks: a number that is wrong, or lost, and a block that its owner's records lack are found and repaired,
// and nothing that the engine does meanwhile fails or gives up.
func TestDamagedRecordsOfManyBlocks(t *testing.T) {
	for _, n := range []int{3, record.MaxListed, record.MaxListed + 1, 70} {
		number := record.OwnerKey(alloc.HostOwner("h"))
		first := string(record.AppendNameKey(nil, record.KindOwner, block.OwnerCode(alloc.HostOwner("h")), netip.MustParsePrefix("10.0.0.0/32")))
		other := string(record.AppendNameKey(nil, record.KindOwner, block.OwnerCode(alloc.HostOwner("h")), netip.MustParsePrefix("10.0.1.0/32")))
		for name, c := range map[string]struct {
			op   store.Op
			want audit.Kind
		}{
			"number lost":       {store.Op{Kind: store.Delete, Key: number}, audit.WrongOwner},
			"number wrong":      {store.Op{Kind: store.Put, Key: number, Value: "\x01\x64"}, audit.WrongOwner},
			"number unreadable": {store.Op{Kind: store.Put, Key: number, Value: "\x01"}, audit.WrongOwner},
			"later version":     {store.Op{Kind: store.Put, Key: number, Value: "?"}, audit.WrongOwner},
			"block lost":        {store.Op{Kind: store.Delete, Key: first}, audit.MissingIndex},
			"block had":         {store.Op{Kind: store.Put, Key: first, Value: record.IndexValue(1)}, audit.StaleIndex},
			"block of another":  {store.Op{Kind: store.Put, Key: other}, audit.StaleIndex},
		} {
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 32))
			for i := range n {
				if _, _, err := w.ClaimAffinity(bg, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32), alloc.HostOwner("h")); err != nil {
					t.Fatal(err)
				}
			}
			c.op.Expect = store.AnyRevision
			if _, err := w.store.Commit(bg, []store.Op{c.op}); err != nil {
				t.Fatal(err)
			}
			rep, err := w.Operator().Check(bg, nil)
			if err != nil || len(rep.Problems) != 1 || rep.Problems[0].Kind != c.want {
				t.Errorf("%d blocks, %s: %+v, %v", n, name, rep, err)
			}
			e := w.engine(w.store)
			unread := ipalloc.ErrCorrupt
			if name == "later version" {
				unread = ipalloc.ErrVersion
			}
			_, err = e.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), Prefix: netip.MustParsePrefix("10.0.0.2/32")})
			if err != nil && !errors.Is(err, unread) {
				t.Errorf("%d blocks, %s: %v", n, name, err)
			}
			if rep, err = w.Operator().Check(bg, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Operator().Repair(bg, rep.Repair); err != nil {
				t.Errorf("%d blocks, %s: %v", n, name, err)
			}
		}
	}
}

// TestOwnerWhoseBlocksCannotBeListed: whichever call of the store fails, and where one of the owner's records has a key that cannot
// be read, no call goes by a part of the blocks: the limit of a pool holds, and the number of blocks stays right.
func TestOwnerWhoseBlocksCannotBeListed(t *testing.T) {
	h, first := alloc.HostOwner("h"), netip.MustParsePrefix("10.0.0.0/32")
	for name, call := range map[string]func(e *Engine) error{
		"take": func(e *Engine) error {
			_, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: h, Prefix: first})
			return err
		},
		"limit": func(e *Engine) error {
			_, failed, err := e.ClaimAffinity(bg, netip.MustParsePrefix("10.0.1.0/32"), h)
			if err == nil && (len(failed) != 1 || !errors.Is(failed[0].Err, ipalloc.ErrLimit)) {
				t.Errorf("claimed beyond the limit: %v", failed)
			}
			return err
		},
		"assign": func(e *Engine) error { _, err := e.AutoAssign(bg, want("h", 70, "p")); return err },
		"assign onward": func(e *Engine) error {
			a := want("h", 70, "p")
			a.Choose = alloc.From(first.Addr())
			_, err := e.AutoAssign(bg, a)
			return err
		},
	} {
		limited := poolOf("a", "10.0.0.0/23", 32)
		limited.MaxBlocksPerHost = record.MaxListed + 1
		build := func() *world {
			w := newWorld(t, alloc.Config{}, limited)
			for i := range limited.MaxBlocksPerHost {
				at := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
				if _, failed, err := w.ClaimAffinity(bg, at, h); err != nil || len(failed) > 0 {
					t.Fatal(failed, err)
				}
			}
			return w
		}
		for k := 1; ; k++ {
			w := build()
			s := scripted(w.store, faults.At(k, faults.Fail(errDown)))
			err := call(w.engine(s))
			w.check()
			if s.Counts().Calls() < k {
				if err != nil || k < 4 {
					t.Errorf("%s: %v, %d calls", name, err, k-1)
				}
				break
			}
			if !errors.Is(err, errDown) {
				t.Errorf("%s: call %d fails: %v", name, k, err)
			}
		}
		w := build()
		bad := record.OwnerKey(h) + "no block"
		if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: bad}}); err != nil {
			t.Fatal(err)
		}
		if err := call(w.engine(w.store)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v beside a key that cannot be read", name, err)
		}
		w.remove(bad)
		w.check()
	}
}

// TestIndexKeyThatCannotBeRead: a call that goes by an index fails if a key of it cannot be read, and releases nothing.
func TestIndexKeyThatCannotBeRead(t *testing.T) {
	h := alloc.HostOwner("h")
	own, held, borrowed := record.CodeRange(record.KindOwner, h).From, record.HandleRange("p").From+"\x00", record.CodeRange(record.KindHost, h).From
	shared := record.KindShare + "web\x00"
	for name, call := range map[string]struct {
		key string
		do  func(e *Engine) error
	}{
		"BlocksOf":                {own, func(e *Engine) error { _, err := e.BlocksOf(bg, h); return err }},
		"IPsByHost":               {own, func(e *Engine) error { _, err := e.IPsByHost(bg, h); return err }},
		"IPsByHost, borrowed":     {borrowed, func(e *Engine) error { _, err := e.IPsByHost(bg, h); return err }},
		"IPsByHandle":             {held, func(e *Engine) error { _, err := e.IPsByHandle(bg, "p"); return err }},
		"IPsByShare":              {shared, func(e *Engine) error { _, err := e.IPsByShare(bg, "web"); return err }},
		"ReleaseByHost":           {own, func(e *Engine) error { _, err := e.ReleaseByHost(bg, h); return err }},
		"ReleaseByHost, borrowed": {borrowed, func(e *Engine) error { _, err := e.ReleaseByHost(bg, h); return err }},
		"ReleaseByHandle":         {held, func(e *Engine) error { _, err := e.ReleaseByHandle(bg, "p"); return err }},
		"Release":                 {held, func(e *Engine) error { _, err := e.Release(bg, alloc.ReleaseArgs{Handle: "p"}); return err }},
		"Renew":                   {held, func(e *Engine) error { _, err := e.Renew(bg, "p", alloc.RenewArgs{TTL: time.Hour}); return err }},
		"DisownBlocks":            {own, func(e *Engine) error { _, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: h}); return err }},
		"AutoAssign, if it has one": {held, func(e *Engine) error {
			a := want("h", 1, "p")
			a.Existing = true
			_, err := e.AutoAssign(bg, a)
			return err
		}},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		a := want("h", 3, "p")
		a.TTL = time.Hour
		w.assign(a)
		w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: call.key + "none", Expect: store.AnyRevision}})
		rev := w.rev()
		if err := call.do(w.engine(w.store)); !errors.Is(err, ipalloc.ErrCorrupt) || w.rev() != rev {
			t.Errorf("%s: %v, revision %d, was %d", name, err, w.rev(), rev)
		}
		w.remove(call.key + "none")
	}
}

// TestFirstRecordThatCannotBeRead: a first holding whose record names no address fails every call that goes by it.
func TestFirstRecordThatCannotBeRead(t *testing.T) {
	for name, call := range map[string]func(e *Engine) error{
		"Assign":          func(e *Engine) error { _, err := e.Assign(bg, alloc.HostOwner("h"), "p"); return err },
		"IPsByHandle":     func(e *Engine) error { _, err := e.IPsByHandle(bg, "p"); return err },
		"ReleaseByHandle": func(e *Engine) error { _, err := e.ReleaseByHandle(bg, "p"); return err },
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		if _, err := w.Assign(bg, alloc.HostOwner("h"), "p"); err != nil {
			t.Fatal(err)
		}
		key := record.HandleRange("p").From
		w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: key, Value: "none", Expect: store.AnyRevision}})
		rev := w.rev()
		if err := call(w.engine(w.store)); !errors.Is(err, ipalloc.ErrCorrupt) || w.rev() != rev {
			t.Errorf("%s: %v, revision %d, was %d", name, err, w.rev(), rev)
		}
		rep, err := w.Operator().Check(bg, nil)
		if err != nil || len(rep.Problems) == 0 {
			t.Fatal(rep, err)
		}
		if _, err := w.Operator().Repair(bg, rep.Repair); err != nil {
			t.Fatal(err)
		}
		if a, err := w.engine(w.store).Assign(bg, alloc.HostOwner("h"), "p"); err != nil || a.Seq != 1 {
			t.Errorf("%s: after the repair %+v, %v", name, a, err)
		}
	}
}

// TestGivingUpABlockReadsLittle: the blocks of an owner are listed when they become few, and not while they are few or many.
func TestGivingUpABlockReadsLittle(t *testing.T) {
	for n, lists := range map[int]int{3: 0, record.MaxListed: 0, record.MaxListed + 1: 1, 100: 0} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 32))
		for i := range n {
			at := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
			if _, _, err := w.ClaimAffinity(bg, at, alloc.HostOwner("h")); err != nil {
				t.Fatal(err)
			}
		}
		at, owner, listed := netip.MustParsePrefix("10.0.0.2/32"), record.CodeRange(record.KindOwner, alloc.HostOwner("h")), 0
		s := scripted(w.store, func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.List && c.Range.From == owner.From && c.Range.To == owner.To {
				listed++
			}
			return faults.Outcome{}
		})
		gone, err := w.engine(s).DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("h"), Prefix: at})
		if err != nil || len(gone) != 1 || listed != lists {
			t.Errorf("one of %d: %v, %v; all listed %d times, want %d", n, gone, err, listed, lists)
		}
	}
}

func TestBlockLimitIsNotPerPool(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true, MaxBlocksPerHost: 2}, poolOf("a", "10.0.0.0/24", 30), poolOf("b", "10.0.1.0/24", 30))
	for _, name := range []string{"a", "b"} {
		a := want("h", 16, "p")
		a.Pools = []string{name}
		w.assign(a)
	}
	if n := len(w.blocksOf("h")); n != 2 {
		t.Errorf("%d blocks, limit 2", n)
	}
	_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.1.200"), Owner: alloc.HostOwner("h")})
	if !errors.Is(err, cause.BlockLimit) {
		t.Errorf("AssignIP beyond the limit: %v", err)
	}
}

func TestBlockLimitDoesNotForbidBorrowing(t *testing.T) {
	w := newWorld(t, alloc.Config{MaxBlocksPerHost: 20}, poolOf("a", "10.0.0.0/24", 32))
	p := poolOf("b", "10.0.1.0/28", 28)
	if err := w.AddPool(bg, p); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.1.0"), Owner: alloc.HostOwner("x")}); err != nil {
		t.Fatal(err)
	}
	got := w.assign(want("h", 30, "p"))
	if n := len(w.blocksOf("h")); n != 20 {
		t.Errorf("%d blocks, limit 20", n)
	}
	if len(got.V4) != 30 {
		t.Errorf("%d addresses: the limit forbade to borrow: %+v", len(got.V4), got.Short)
	}
}

// Whether a limit of a pool is reached does not depend on a block of another size that an engine has cached, in whatever state.
func TestLimitDoesNotDependOnTheCache(t *testing.T) {
	old, size := poolOf("old", "10.0.0.0/28", 30), poolOf("old", "10.0.0.0/28", 29)
	old.Cooldown, size.Cooldown = 10*time.Second, 10*time.Second
	w := newWorld(t, alloc.Config{Strict: true, MaxBlocksPerHost: 1}, old, poolOf("new", "10.0.1.0/28", 30))
	o, other := alloc.HostOwner("h0"), w.engine(w.store)
	if _, err := w.Assign(bg, o, "p0", "old"); err != nil {
		t.Fatal(err)
	}
	if err := other.UpdatePool(bg, size); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Assign(bg, alloc.HostOwner("h1"), "q0", "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.ReleaseByHandle(bg, "p0"); err != nil {
		t.Fatal(err)
	}
	w.clock.add(time.Hour)
	want := answered(w.engine(w.store).DryRun().Assign(bg, o, "p1", "new"))
	for range 2 {
		if got := answered(w.DryRun().Assign(bg, o, "p1", "new")); got != want {
			t.Errorf("dry: %s, want %s", got, want)
		}
		if got := answered(w.Assign(bg, o, "p1", "new")); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
			t.Fatal(err)
		}
	}
}
