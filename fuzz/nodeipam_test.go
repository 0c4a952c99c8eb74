package fuzz

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

const nodeipamOps = 16

var nodeipamConfigs = []nodeipam.Config{
	{Slots: []nodeipam.Slot{{Bits: 28, Pools: prefixList("10.0.0.0/24")}}},
	{Slots: []nodeipam.Slot{{Bits: 27, Pools: prefixList("10.0.0.0/25", "10.0.0.128/26")}, {Bits: 66, Pools: prefixList("fd00::/64")}}},
	{Slots: []nodeipam.Slot{{Bits: 66, Pools: prefixList("fd00::/62")}, {Bits: 28, Pools: prefixList("10.0.0.0/26")}},
		Reserved: prefixList("10.0.0.0/28", "fd00:0:0:1::/65")},
	{Slots: []nodeipam.Slot{{Bits: 24, Pools: prefixList("10.0.0.0/24")}, {Bits: 64, Pools: prefixList("fd00::/62")}, {Bits: 32, Pools: prefixList("10.0.1.0/29")}},
		Reserved: prefixList("10.0.1.2/32", "10.0.1.0/30", "fd00::/60")},
}

func prefixList(texts ...string) (ps []netip.Prefix) {
	for _, text := range texts {
		ps = append(ps, netip.MustParsePrefix(text))
	}
	return ps
}

// nodeipamReplay holds the sides of a replay: the allocator, its model, and an
// allocator that hears of the first one's changes only.
type nodeipamReplay struct {
	t      testing.TB
	a      *nodeipam.Allocator
	follow *nodeipam.Allocator
	m      *model.NodeIPAM

	journal []nodeipam.Change // of all changes
}

func (r *nodeipamReplay) hook(c nodeipam.Change) {
	r.journal = append(r.journal, c)
	if err := r.follow.Apply(c); err != nil {
		r.t.Fatalf("applying %+v: %v", c, err)
	}
}

// replayNodeIPAM runs a trace on both sides and compares every answer.
func replayNodeIPAM(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	c := nodeipamConfigs[tr.Op(len(nodeipamConfigs))]
	r := &nodeipamReplay{t: t, m: &model.NodeIPAM{Held: map[string][]netip.Prefix{}, Leaving: map[string]bool{}, UIDs: map[string]string{}}}
	var err, err2 error
	r.a, err = nodeipam.New(c, nodeipam.OnChange(r.hook))
	r.follow, err2 = nodeipam.New(c)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, s := range c.Slots {
		ms := model.NodeSlot{Bits: s.Bits, V4: s.Pools[0].Addr().Is4()}
		for _, p := range s.Pools {
			ms.Pools = append(ms.Pools, &model.NodePool{Prefix: p})
		}
		r.m.Slots = append(r.m.Slots, ms)
	}
	r.m.Reserved = slices.Clone(c.Reserved)
	for tr.More() {
		op := tr.Op(nodeipamOps)
		r.step(op, tr)
		if err := r.a.Check(); err != nil {
			t.Fatalf("after op %d: %v", op, err)
		}
		r.compare(op)
	}
}

func (r *nodeipamReplay) step(op int, tr *model.Trace) {
	switch name := fmt.Sprintf("n%d", tr.Below(8)); op {
	case 0, 1, 2, 3:
		r.allocate(name, someUID(tr))
	case 4, 5:
		was := r.m.Held[name]
		as, got := r.a.Release(name)
		if want := r.m.Release(name); got != want || !slices.Equal(as.Prefixes, was) {
			r.t.Fatalf("Release(%s) = %v, %v, want %v", name, as, got, was)
		}
	case 6, 7:
		r.occupy(name, r.someNode(name, tr))
	case 8, 9:
		r.load([]nodeipam.Node{r.someNode(name, tr)})
	case 10:
		other := fmt.Sprintf("n%d", tr.Below(8))
		if nodes := []nodeipam.Node{r.someNode(name, tr), r.someNode(other, tr)}; name != other {
			r.load(nodes)
		}
	case 11:
		_, has := r.m.Held[name]
		if got := r.a.Terminate(name); got != has {
			r.t.Fatalf("Terminate(%s) = %v, want %v", name, got, has)
		}
		if has {
			r.m.Leaving[name] = true
		}
	case 12:
		r.reserve(r.somePrefix(tr))
	case 13:
		r.drain(tr)
	case 14:
		r.pools(tr)
	case 15:
		r.reload(tr)
	}
}

// someUID reads a UID, more often none.
func someUID(tr *model.Trace) string { return []string{"", "", "u1", "u2"}[tr.Below(4)] }

func (r *nodeipamReplay) allocate(name, uid string) {
	got, err := r.a.Allocate(nodeipam.Node{Name: name, UID: uid})
	want, slot, ok := r.m.Allocate(name, uid)
	var e *ipalloc.Error
	switch {
	case ok != (err == nil) || !slices.Equal(got.Prefixes, want):
		r.t.Fatalf("Allocate(%s) = %v, %v, want %v, %v", name, got, err, want, ok)
	case !ok && (!errors.Is(err, ipalloc.ErrFull) || !errors.As(err, &e) || e.Field != fmt.Sprintf("Slots[%d]", slot)):
		r.t.Fatalf("Allocate(%s): %v, want full in slot %d", name, err, slot)
	}
}

// somePrefix reads a prefix: a child, something larger or smaller, in a pool or
// beside it.
func (r *nodeipamReplay) somePrefix(tr *model.Trace) netip.Prefix {
	v := tr.Uint()
	if v%2 == 0 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(v >> 1 & 1), byte(v >> 2)})
		p, _ := a.Prefix(22 + int(v>>10%11))
		return p
	}
	a := netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(v >> 1 & 7), 8: byte(v >> 4)})
	p, _ := a.Prefix(59 + int(v>>12%11))
	return p
}

// someNode reads what a node says it has; now and then no prefix at all, or one
// that is none.
func (r *nodeipamReplay) someNode(name string, tr *model.Trace) nodeipam.Node {
	n := nodeipam.Node{Name: name, UID: someUID(tr), Terminating: tr.Below(4) == 1}
	for i := range tr.Below(4) {
		p := r.somePrefix(tr)
		if p.Bits() == 59 {
			p = netip.Prefix{}
		} else if s := r.m.Slots; int(i) < len(s) && p.Bits()%3 != 0 && s[i].V4 == p.Addr().Is4() {
			p, _ = p.Addr().Prefix(s[i].Bits) // more often what it should be
		}
		n.Prefixes = append(n.Prefixes, p)
	}
	return n
}

// words turns problems into what the model says of them.
func (r *nodeipamReplay) words(problems []*ipalloc.Error) (words []string) {
	for _, e := range problems {
		w := "?"
		switch {
		case errors.Is(e, ipalloc.ErrLimit):
			w = "slot"
		case errors.Is(e, ipalloc.ErrMismatch):
			w = "family"
		case errors.Is(e, ipalloc.ErrOutOfRange) && strings.HasPrefix(e.Reason, "not a /"):
			w = "size"
		case errors.Is(e, ipalloc.ErrOutOfRange):
			w = "range"
		case errors.Is(e, ipalloc.ErrReserved):
			w = "reserved"
		case errors.Is(e, ipalloc.ErrInvalid):
			w = "bad"
		case errors.Is(e, ipalloc.ErrNotHeld):
			w = "missing"
		case errors.Is(e, ipalloc.ErrOccupied):
			w = "rival"
		}
		words = append(words, w)
	}
	return words
}

// occupy compares the verb that refuses.
func (r *nodeipamReplay) occupy(name string, n nodeipam.Node) {
	err := r.a.Occupy(nodeipam.Node{Name: name, UID: n.UID, Prefixes: n.Prefixes})
	if ok := r.m.Occupy(name, n.UID, n.Prefixes); ok != (err == nil) {
		r.t.Fatalf("Occupy(%s, %v): %v, want %v", name, n.Prefixes, err, ok)
	}
}

func (r *nodeipamReplay) load(nodes []nodeipam.Node) {
	var want []string
	rivals := map[string][]string{}
	for _, n := range nodes {
		r.m.Observe(n.Name, n.UID, n.Prefixes, n.Terminating)
		for _, p := range n.Prefixes {
			if !p.IsValid() {
				want = append(want, "bad")
			}
		}
		for i, p := range n.Prefixes {
			if p.IsValid() {
				want = append(want, r.m.Judge(n.Name, i, p)...)
				rivals[fmt.Sprintf("%sPrefixes[%d]", n.Name, i)] = r.m.Rivals(p, n.Name)
			}
		}
		if len(n.Prefixes) > 0 { // an empty record says nothing
			want = append(want, r.m.Missing(r.m.Held[n.Name])...)
		}
	}
	check := func(problems []*ipalloc.Error) {
		if got := r.words(problems); !slices.Equal(got, want) {
			r.t.Fatalf("recording %+v: %v, want %v", nodes, problems, want)
		}
		for _, e := range problems {
			if e.Holder != "" && !slices.Contains(rivals[e.Owner+e.Field], e.Holder) {
				r.t.Fatalf("%v: no such rival", e)
			}
		}
	}
	if len(nodes) == 1 {
		was := r.bytes(r.a)
		changed, problems := r.a.Observe(nodes[0])
		check(problems)
		if now := r.bytes(r.a); changed == (was == now) {
			r.t.Fatalf("Observe(%+v) says changed: %v", nodes[0], changed)
		}
		return
	}
	check(r.a.Load(nodes))
}

func (r *nodeipamReplay) reserve(p netip.Prefix) {
	if at := slices.Index(r.m.Reserved, p); at >= 0 {
		if err := r.a.Unreserve(p); err != nil {
			r.t.Fatal(err)
		}
		r.m.Reserved = slices.Delete(r.m.Reserved, at, at+1)
		return
	}
	if err := r.a.Unreserve(p); !errors.Is(err, ipalloc.ErrNotFound) {
		r.t.Fatalf("Unreserve(%v): %v", p, err)
	}
	if err := r.a.Reserve(p); err != nil {
		r.t.Fatal(err)
	}
	var names []string
	in := r.a.Holders(p)
	for _, n := range in {
		if !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
		if !n.Prefixes[0].Overlaps(p) {
			r.t.Fatalf("Holders(%v) lists %v", p, n)
		}
	}
	slices.Sort(names)
	if want := r.m.Rivals(p, ""); !slices.Equal(names, want) {
		r.t.Fatalf("Holders(%v) lists %v, want %v", p, in, want)
	}
	r.m.Reserved = append(r.m.Reserved, p)
}

// somePool reads a pool there is.
func (r *nodeipamReplay) somePool(tr *model.Trace) (*model.NodeSlot, *model.NodePool) {
	s := &r.m.Slots[tr.Below(uint64(len(r.m.Slots)))]
	if len(s.Pools) == 0 {
		return s, nil
	}
	return s, s.Pools[tr.Below(uint64(len(s.Pools)))]
}

func (r *nodeipamReplay) drain(tr *model.Trace) {
	_, p := r.somePool(tr)
	if p == nil {
		return
	}
	p.Draining = !p.Draining
	if err := r.a.DrainPool(p.Prefix, p.Draining); err != nil {
		r.t.Fatal(err)
	}
}

// pools adds, grows or removes one.
func (r *nodeipamReplay) pools(tr *model.Trace) {
	s, p := r.somePool(tr)
	q := r.somePrefix(tr)
	switch {
	case tr.Below(3) == 0 || p == nil:
		at := slices.IndexFunc(r.m.Slots, func(x model.NodeSlot) bool { return x.Bits == s.Bits })
		err := r.a.AddPool(at, q)
		in, _ := r.m.Pool(q)
		again := in != nil && in.Bits == s.Bits // in these traces, the slot
		ok := q.Addr().Is4() == s.V4 && q.Bits() <= s.Bits && !r.m.Overlaps(q, nil)
		if (ok || again) != (err == nil) {
			r.t.Fatalf("AddPool(%d, %v): %v, want %v", at, q, err, ok)
		}
		if ok {
			s.Pools = append(s.Pools, &model.NodePool{Prefix: q})
		}
	case tr.Below(2) == 0:
		bits := max(0, p.Prefix.Bits()-1)
		if p.Prefix.Bits()+8 < s.Bits {
			return // the model is slow
		}
		q, _ = p.Prefix.Addr().Prefix(bits)
		err := r.a.GrowPool(p.Prefix, q)
		if ok := !r.m.Overlaps(q, p); ok != (err == nil) {
			r.t.Fatalf("GrowPool(%v, %v): %v, want %v", p.Prefix, q, err, ok)
		} else if ok {
			r.m.Grow(s, p, q)
		}
	default:
		err := r.a.RemovePool(p.Prefix)
		if ok := len(r.m.Rivals(p.Prefix, "")) == 0; ok != (err == nil) || !ok && !errors.Is(err, ipalloc.ErrInUse) {
			r.t.Fatalf("RemovePool(%v): %v, want %v", p.Prefix, err, ok)
		} else if ok {
			s.Pools = slices.Delete(s.Pools, slices.Index(s.Pools, p), slices.Index(s.Pools, p)+1)
		}
	}
}

// reload goes on with what a snapshot restores.
func (r *nodeipamReplay) reload(tr *model.Trace) {
	data, err := r.a.MarshalBinary()
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := nodeipam.Restore(data, nodeipam.OnChange(r.hook))
	if err != nil {
		r.t.Fatal(err)
	}
	again, _ := b.MarshalBinary()
	if !slices.Equal(data, again) {
		r.t.Fatalf("a snapshot reads back as another one")
	}
	r.a = b
	overlap(r.t, data, r.journal, tr)
}

// overlap replays the end of a journal, from somewhere on, on the snapshot that shows
// all of it: the state must be the same again, cursors included.
func overlap(t testing.TB, data []byte, journal []nodeipam.Change, tr *model.Trace) {
	a, err := nodeipam.Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	from := tr.Below(uint64(len(journal)) + 1)
	for _, c := range journal[from:] {
		if err := a.Apply(c); err != nil {
			t.Fatalf("applying %+v again: %v", c, err)
		}
	}
	if again, _ := a.MarshalBinary(); !slices.Equal(data, again) {
		t.Fatalf("a journal of %d changes that overlaps the snapshot gives another state: %+v", len(journal[from:]), journal[from:])
	}
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
}

// compare compares the whole state, also of the allocator that follows the changes.
func (r *nodeipamReplay) compare(op int) {
	for _, a := range []*nodeipam.Allocator{r.a, r.follow} {
		held := map[string][]netip.Prefix{}
		for n := range a.All() {
			held[n.Name] = n.Prefixes
		}
		if fmt.Sprint(held) != fmt.Sprint(r.m.Held) {
			r.t.Fatalf("after op %d: %v, want %v", op, held, r.m.Held)
		}
		leaving := 0
		for _, l := range r.m.Leaving {
			if l {
				leaving++
			}
		}
		st := a.Stats()
		if st.Terminating != leaving || st.Nodes != len(held) {
			r.t.Fatalf("after op %d: %+v, want %d terminating of %d", op, st, leaving, len(held))
		}
		at := 0
		for i := range r.m.Slots {
			s := &r.m.Slots[i]
			for _, p := range s.Pools {
				reserved, used, free := r.m.Count(s, p)
				want := nodeipam.PoolStats{Slot: i, Pool: p.Prefix, Bits: s.Bits, Draining: p.Draining,
					Capacity: reserved + used + free, Used: used, Reserved: reserved, Free: free}
				if at >= len(st.Pools) || st.Pools[at] != want {
					r.t.Fatalf("after op %d: %+v, want pool %d %+v", op, st.Pools, at, want)
				}
				at++
			}
		}
	}
	r.sameBytes(op)
}

// sameBytes tests that the follower has the same state down to the cursors.
func (r *nodeipamReplay) sameBytes(op int) {
	if r.bytes(r.a) != r.bytes(r.follow) {
		r.t.Fatalf("after op %d: the follower's snapshot differs", op)
	}
}

func (r *nodeipamReplay) bytes(a *nodeipam.Allocator) string {
	data, err := a.MarshalBinary()
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

func randomNodeIPAMTrace(rng *rand.Rand, n int) []byte {
	data := []byte{byte(rng.UintN(256))}
	for range n {
		data = model.AppendOp(data, byte(rng.UintN(256)), rng.Uint64()>>rng.UintN(64), rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40)
	}
	return data
}

func TestNodeIPAMAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 60, 400) {
		replayNodeIPAM(t, randomNodeIPAMTrace(rand.New(rand.NewPCG(seed, 1)), 60))
	}
}

func FuzzNodeIPAM(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomNodeIPAMTrace(rand.New(rand.NewPCG(seed, 2)), 20))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // the model is slow
		}
		replayNodeIPAM(t, data)
	})
}
