package world

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// swept checks that a call answers as it would after a sweep, of what the clock has ended and of nothing else.
func (w *World) swept(t *testing.T, space string, l store.Limits, c Call, what string) {
	t.Helper()
	var answers [2]string
	for i := range answers {
		w := w.Copy(t)
		db := faults.NewLimited(w.DB, l)
		if i == 1 {
			if _, err := w.Engine(t, db, space, 0).Operator().Sweep(t.Context(), alloc.SweepArgs{}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.Do(t.Context(), w.Engine(t, db, space, 0))
		answers[i] = regexp.MustCompile(`Seq:\d+`).ReplaceAllString(fmt.Sprint(got, err), "") // a page of free blocks may have a higher mark
	}
	if answers[0] != answers[1] {
		t.Errorf("%s, %+v: %s answers\n%s\nafter a sweep\n%s", what, l, c.Method, answers[0], answers[1])
	}
}

// wishes are the forms in which an address is asked for, each with one option.
func wishes(owner alloc.Owner, n int, pools ...string) map[string]alloc.AssignArgs {
	all := map[string]alloc.AssignArgs{
		"plain": {}, "partial": {Partial: true}, "sticky": {Sticky: true, Handle: "p0"}, "lease": {TTL: time.Minute},
		"existing": {Existing: true, Handle: "p1"}, "request": {Request: "r"}, "row": {Choose: alloc.Contiguous()}, "aligned": {Choose: alloc.Aligned()},
		"limited": {Blocks: alloc.BlockArgs{Max: 1}, Partial: true},
	}
	for name, a := range all {
		if a.Owner, a.Num4, a.Pools = owner, n, pools; a.Handle == "" {
			a.Handle = "new"
		}
		if a.Choose == alloc.Aligned() {
			a.Num4 = 2
		}
		all[name] = a
	}
	for i := range 3 {
		a := all["partial"]
		for _, c := range []alloc.Choice{alloc.From(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(5 * i)})), alloc.Prefer(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(5 * i)}))} {
			a.Choose = c
			all[c.String()] = a
		}
	}
	return all
}

// An assignment is the one that would follow a sweep, for every option, in every pool and tier: whatever leases and cooldowns the clock
// has ended, in blocks of the owner, of others and of nobody.
func TestAssignmentsAreThoseAfterASweep(t *testing.T) {
	w := New(t)
	for _, l := range limits {
		for _, c := range append(assigning(), Queries()[0]) {
			for _, space := range Spaces {
				w.swept(t, space, l, c, "the world, "+space)
			}
		}
	}
	for seed := range seeds.Each(t, 20, 200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := ended(t, rnd)
		owner := host(fmt.Sprint("h", rnd.IntN(4)))
		for name, a := range wishes(owner, 1+rnd.IntN(3)) {
			for _, l := range limits[:1+rnd.IntN(len(limits))] {
				w.swept(t, "", l, Call{Method: "AutoAssign", Do: func(ctx ctx, e engine) (string, error) { got, err := e.AutoAssign(ctx, a); return answer(err, got) }}, name)
				w.swept(t, "", l, Call{Method: "Explain", Do: func(ctx ctx, e engine) (string, error) { got, err := e.Explain(ctx, a); return answer(err, got) }}, name)
			}
		}
		for i := range 16 {
			a := alloc.AssignIPArgs{Address: netip.AddrFrom4([4]byte{10, 0, byte(i % 3), byte(i)}), Owner: owner, Handle: "new",
				WithinRules: i%2 == 1}
			w.swept(t, "", limits[0], Call{Method: "AssignIP", Do: func(ctx ctx, e engine) (string, error) { got, err := e.AssignIP(ctx, a); return answer(err, got) }}, a.Address.String())
		}
		w.swept(t, "", limits[0], Call{Method: "EnsureBlock", Do: func(ctx ctx, e engine) (string, error) {
			got, err := e.EnsureBlock(ctx, alloc.AssignArgs{Owner: owner, Num4: 1})
			return answer(err, got)
		}}, "a block")
	}
}

// ended returns small pools of two priorities, nearly full of leases and of cooling addresses, most of which the clock has ended: some
// blocks have lost their owners, and one pool has another block size than some of its blocks.
func ended(t *testing.T, rnd *rand.Rand) *World {
	w := &World{DB: store.NewMemory(), Clock: &Clock{t: start}}
	e := w.Engine(t, w.DB, "", 0)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.Operator().SetConfig(t.Context(), alloc.Config{Strict: rnd.IntN(3) == 0, MaxBlocksPerHost: rnd.IntN(5)}))
	for i := range 3 {
		p := alloc.Pool{Name: fmt.Sprint("p", i), Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 28), BlockBits: 30 - rnd.IntN(2),
			Priority: rnd.IntN(2), Cooldown: time.Duration(rnd.IntN(2)) * time.Minute, Order: alloc.Order(rnd.IntN(2))}
		must(e.AddPool(t.Context(), p))
		if rnd.IntN(3) == 0 {
			defer func() {
				p.BlockBits = 30
				must(e.UpdatePool(t.Context(), p))
			}()
		}
	}
	for i := range 60 {
		a := alloc.AssignArgs{Owner: host(fmt.Sprint("h", rnd.IntN(4))), Num4: 1 + rnd.IntN(3), Handle: fmt.Sprint("p", rnd.IntN(12)), Partial: true, Sticky: true}
		if rnd.IntN(5) > 0 {
			a.TTL = time.Duration(1+rnd.IntN(120)) * time.Minute
		}
		_, err := e.AutoAssign(t.Context(), a)
		must(err)
		if rnd.IntN(6) == 0 {
			_, err := e.ReleaseByHandle(t.Context(), fmt.Sprint("p", rnd.IntN(12)))
			must(err)
		}
		if i > 40 && rnd.IntN(8) == 0 {
			_, err := e.DisownBlocks(t.Context(), alloc.DisownArgs{Owner: host(fmt.Sprint("h", rnd.IntN(4)))})
			must(err)
		}
	}
	w.Clock.Add(time.Duration(1+rnd.IntN(3)) * time.Hour)
	return w
}
