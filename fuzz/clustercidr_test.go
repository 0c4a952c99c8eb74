package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/selector"
)

// The world of a trace: pools that overlap in every way, in children of every size,
// and selectors that match one another's nodes.
var (
	clusterPools = [2][]netip.Prefix{
		prefixList("10.0.0.0/27", "10.0.0.0/28", "10.0.0.16/28", "10.0.0.8/29", "9.0.0.0/28", "10.0.0.0/26", "100.64.0.0/28"),
		prefixList("fd00::/123", "fd00::/124", "fd00::10/124", "fd00::8/125", "fc00::/124", "fd00::/122", "fd00:0:0:1::/124"),
	}
	clusterStrays = prefixList("10.0.0.0/24", "10.0.0.12/30", "10.0.0.18/32", "192.0.2.0/28", "0.0.0.0/0",
		"fd00::/64", "fd00::c/126", "fd00::12/128", "2001:db8::/32", "::/0")
	clusterTerms = [][]model.ClusterRequirement{
		{{Key: "a", Op: "Exists"}},
		{{Key: "a", Op: "In", Values: []string{"1"}}},
		{{Key: "b", Op: "In", Values: []string{"1", "2"}}, {Key: "a", Op: "Exists"}},
		{{Key: "c", Op: "Gt", Values: []string{"1"}}, {Key: "c", Op: "Lt", Values: []string{"3"}}},
		{{Key: "b", Op: "NotIn", Values: []string{"1"}}},
		{{Key: "a", Op: "DoesNotExist"}, {Key: "b", Op: "DoesNotExist"}},
		{{Field: true, Key: "metadata.name", Op: "In", Values: []string{"n1", "n2"}}},
		{{Field: true, Key: "metadata.name", Op: "NotIn", Values: []string{"n3"}}, {Key: "c", Op: "Exists"}},
	}
)

// clusterReplay holds the two sides of a replay, and a third allocator that applies the
// changes of the first.
type clusterReplay struct {
	t       testing.TB
	a       *nodeipam.Allocator
	m       *model.ClusterCIDRs
	replica *nodeipam.Allocator
	config  nodeipam.Config
	opts    []nodeipam.Option
	journal []nodeipam.Change // since the last restart without a snapshot
}

// replayCluster runs a trace on both sides and compares every answer.
func replayCluster(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	r := &clusterReplay{t: t, config: nodeipam.Config{ByLabels: true}}
	need := [][]int{nil, {0}, {0, 1}, {1, 0}}[tr.Op(4)]
	lowest := tr.Op(2) == 1
	for _, f := range need {
		r.config.Families = append(r.config.Families, []nodeipam.Family{nodeipam.IPv4, nodeipam.IPv6}[f])
	}
	if lowest {
		r.opts = append(r.opts, nodeipam.LowestFirst())
	}
	r.m = model.NewClusterCIDRs(lowest, need...)
	r.replica = r.fresh()
	r.opts = append(r.opts, nodeipam.OnChange(func(c nodeipam.Change) {
		r.journal = append(r.journal, c)
		if err := r.replica.Apply(c); err != nil {
			t.Fatalf("applying %v: %v", c, err)
		}
	}))
	r.a = r.fresh()
	for tr.More() {
		op := tr.Op(12)
		r.step(op, tr)
		if err := r.a.Check(); err != nil {
			t.Fatalf("after op %d: %v", op, err)
		}
	}
	r.compare()
	r.same("replica", r.bytes(r.replica), r.bytes(r.a))
}

func (r *clusterReplay) fresh() *nodeipam.Allocator {
	a, err := nodeipam.New(r.config, r.opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *clusterReplay) bytes(a *nodeipam.Allocator) string {
	data, err := a.MarshalBinary()
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

func (r *clusterReplay) step(op int, tr *model.Trace) {
	switch op {
	case 0, 1:
		r.add(tr)
	case 2:
		name := fmt.Sprintf("e%d", tr.Below(6))
		gone, err := r.a.DeleteEntry(name)
		wantGone, ok := r.m.Delete(name)
		r.same("Delete "+name, fmt.Sprint(gone, err == nil), fmt.Sprint(wantGone, ok))
	case 3, 4, 5:
		r.allocate(tr)
	case 6:
		name := fmt.Sprintf("n%d", tr.Below(12))
		as, ok := r.a.Release(name)
		want, wok := r.m.Release(name)
		r.same("Release "+name, fmt.Sprint(as.Entry, as.Prefixes, ok), fmt.Sprint(want.Entry, want.Prefixes, wok))
	case 7:
		r.observe(tr)
	case 8:
		p := r.prefix(tr)
		if err := r.a.Reserve(p); err != nil {
			r.t.Fatal(err)
		}
		r.m.Reserved[p] = true
	case 9:
		p := r.prefix(tr)
		r.same("Unreserve "+p.String(), fmt.Sprint(r.a.Unreserve(p) == nil), fmt.Sprint(r.m.Reserved[p]))
		delete(r.m.Reserved, p)
	case 10:
		r.restart(tr.Op(2) == 1, tr)
	case 11:
		r.compare()
	}
}

func (r *clusterReplay) add(tr *model.Trace) {
	e := model.ClusterEntry{Name: fmt.Sprintf("e%d", tr.Below(6)), HostBits: int(tr.Below(6))}
	which := tr.Uint()
	for f := range clusterPools {
		if which%4 != uint64(f)+1 { // 0 and 3: both
			e.Pools[f] = clusterPools[f][which/4>>(8*f)%uint64(len(clusterPools[f]))]
		}
	}
	for v := tr.Uint(); v%4 != 0 && len(e.Terms) < 3; v /= 32 {
		e.Terms = append(e.Terms, clusterTerms[v/4%8])
	}
	c := nodeipam.Entry{Name: e.Name, IPv4: e.Pools[0], IPv6: e.Pools[1], HostBits: e.HostBits}
	if e.HostBits == 0 {
		if c.IPv4.IsValid() {
			c.MaskIPv4 = 32
		} else {
			c.MaskIPv6 = 128
		}
	}
	for _, t := range e.Terms {
		var term selector.Term
		for _, q := range t {
			req := selector.Requirement{Key: q.Key, Op: selector.Operator(q.Op), Values: q.Values}
			if q.Field {
				term.Fields = append(term.Fields, req)
			} else {
				term.Labels = append(term.Labels, req)
			}
		}
		c.Selector = append(c.Selector, term)
	}
	err, fail := r.a.AddEntry(c), r.m.Add(e)
	r.same("Add "+e.Name, failure(err), fail)
}

// failure returns the model's word for an error.
func failure(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ipalloc.ErrExists):
		return model.ClusterExists
	case errors.Is(err, ipalloc.ErrInUse):
		return model.ClusterTerminating
	case errors.Is(err, ipalloc.ErrNotFound):
		return model.ClusterNoMatch
	case errors.Is(err, ipalloc.ErrFull):
		return model.ClusterFull
	}
	return model.ClusterBad
}

func (r *clusterReplay) allocate(tr *model.Trace) {
	name := fmt.Sprintf("n%d", tr.Below(12))
	labels := map[string]string{}
	v := tr.Uint()
	for _, key := range []string{"a", "b", "c"} {
		if v%4 != 0 {
			labels[key] = fmt.Sprint(v % 4)
		}
		v /= 4
	}
	n := nodeipam.Node{Name: name, Labels: labels}
	_, held := r.m.Nodes[name]
	x := r.a.Explain(n)
	as, err := r.a.Allocate(n)
	want, fail, tried := r.m.Allocate(name, labels)
	r.same("Allocate "+name, fmt.Sprint(as.Entry, as.Prefixes, failure(err)), fmt.Sprint(want.Entry, want.Prefixes, fail))
	if !held {
		r.same("Explain "+name, x.Chosen, want.Entry)
	}
	if fail == model.ClusterFull { // then Explain lists what was tried
		var full []string
		for _, c := range x.Candidates {
			if c.Verdict == "full" {
				full = append(full, c.Entry)
			}
		}
		r.same("tried", fmt.Sprint(full), fmt.Sprint(tried))
	}
}

// prefix reads a prefix: a child of an entry, a pool, or something odd.
func (r *clusterReplay) prefix(tr *model.Trace) netip.Prefix {
	v := tr.Uint()
	f := int(v / 3 % 2)
	pool := clusterPools[f][v/6%uint64(len(clusterPools[f]))]
	switch v % 3 {
	case 0:
		return pool
	case 1:
		return clusterStrays[v/3%uint64(len(clusterStrays))]
	}
	at := pool.Addr()
	for range v / 6 / 7 % 32 {
		at = at.Next()
	}
	p, _ := at.Prefix(at.BitLen() - int(v/6/7/32%6))
	return p
}

func (r *clusterReplay) observe(tr *model.Trace) {
	n := nodeipam.Node{Name: fmt.Sprintf("n%d", tr.Below(12))}
	if v := tr.Below(10); v < 7 {
		n.Entry = fmt.Sprintf("e%d", v) // e6 is never there
	}
	for range 1 + tr.Below(3) {
		if p := r.prefix(tr); !slices.Contains(n.Prefixes, p) {
			n.Prefixes = append(n.Prefixes, p)
		}
	}
	was := r.bytes(r.a)
	changed, problems := r.a.Observe(n)
	r.same("changed", fmt.Sprint(changed), fmt.Sprint(was != r.bytes(r.a)))
	wantChanged, want := r.m.Observe(n.Name, n.Entry, n.Prefixes)
	var got []string
	for _, p := range problems {
		got = append(got, problemWord(r.t, p))
	}
	sort.Strings(got)
	sort.Strings(want)
	r.same(fmt.Sprintf("Observe %v", n), fmt.Sprint(changed, got), fmt.Sprint(wantChanged, want))
}

func problemWord(t testing.TB, e *ipalloc.Error) string {
	for err, word := range map[error]string{
		ipalloc.ErrNotFound: "no entry", ipalloc.ErrLimit: "too many", ipalloc.ErrMismatch: "unfit",
		ipalloc.ErrOutOfRange: "unfit", ipalloc.ErrReserved: "reserved",
		ipalloc.ErrNotHeld: "missing", ipalloc.ErrOccupied: "duplicate " + e.Holder,
	} {
		switch {
		case !errors.Is(e, err):
		case err == ipalloc.ErrMismatch && !e.Prefix.IsValid():
			return "ambiguous"
		default:
			return word
		}
	}
	t.Fatalf("a problem without a kind: %v", e)
	return ""
}

// restart makes the allocator anew and goes on with that: from a snapshot, or from
// what is recorded of entries, reservations and nodes.
func (r *clusterReplay) restart(snapshot bool, tr *model.Trace) {
	data := []byte(r.bytes(r.a))
	before := r.a
	if snapshot {
		var err error
		if r.a, err = nodeipam.Restore(data, r.opts...); err != nil {
			r.t.Fatal(err)
		}
		r.same("restored", r.bytes(r.a), string(data))
		if !r.m.Lowest {
			overlap(r.t, data, r.journal, tr)
		}
		return
	}
	r.journal = nil
	r.replica, _ = nodeipam.New(r.config, r.opts[:len(r.opts)-1]...)
	r.a = r.fresh()
	for _, p := range before.Reserved() {
		if err := r.a.Reserve(p); err != nil {
			r.t.Fatal(err)
		}
	}
	for e := range before.Entries() {
		if err := r.a.AddEntry(e.Entry); err != nil {
			r.t.Fatal(err)
		}
	}
	r.a.Load(slices.Collect(before.All()))
	for e := range before.Entries() {
		if e.Terminating {
			if gone, err := r.a.DeleteEntry(e.Name); gone || err != nil {
				r.t.Fatalf("%s is not terminating after a restart: %v, %v", e.Name, gone, err)
			}
		}
	}
	if r.m.Lowest && r.bytes(r.a) != string(data) {
		r.t.Fatal("rebuilt from what is recorded, the state is another")
	}
	for _, e := range r.m.Entries {
		e.Cursors = [2]int{} // they are not recorded
	}
	r.compare()
}

// compare compares the whole state.
func (r *clusterReplay) compare() {
	nodes := 0
	for n := range r.a.All() {
		nodes++
		want := r.m.Nodes[n.Name]
		r.same("node "+n.Name, fmt.Sprint(n.Entry, n.Prefixes), fmt.Sprint(want.Entry, want.Prefixes))
	}
	r.same("nodes", fmt.Sprint(nodes), fmt.Sprint(len(r.m.Nodes)))
	entries, stats := 0, r.a.Stats().Pools
	for e := range r.a.Entries() {
		entries++
		want := r.m.Entries[e.Name]
		if want == nil {
			r.t.Fatalf("entry %s is still there", e.Name)
		}
		r.same("entry "+e.Name, fmt.Sprint(e.Terminating, e.Nodes, e.IPv4, e.IPv6), fmt.Sprint(want.Terminating, r.m.NodesOf(e.Name), want.Pools[0], want.Pools[1]))
		for _, s := range stats {
			if s.Entry == e.Name {
				f := 0
				if s.Pool.Addr().Is6() {
					f = 1
				}
				r.same("free of "+e.Name, fmt.Sprint(s.Free), fmt.Sprint(r.m.Free(want, f)))
			}
		}
	}
	r.same("entries", fmt.Sprint(entries), fmt.Sprint(len(r.m.Entries)))
	r.same("reserved", fmt.Sprint(len(r.a.Reserved())), fmt.Sprint(len(r.m.Reserved)))
}

func (r *clusterReplay) same(what, got, want string) {
	r.t.Helper()
	if got != want {
		var state strings.Builder
		for e := range r.a.Entries() {
			fmt.Fprintln(&state, e)
		}
		for n := range r.a.All() {
			fmt.Fprintln(&state, n)
		}
		r.t.Fatalf("%s: got %q, want %q\nreserved %v\n%s", what, got, want, r.a.Reserved(), &state)
	}
}

// randomClusterTrace returns a trace of n operations.
func randomClusterTrace(rng *rand.Rand, n int) []byte {
	data := []byte{byte(rng.UintN(256)), byte(rng.UintN(256))}
	for range n {
		data = model.AppendOp(data, byte(rng.UintN(256)), rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40)
		data = data[:len(data)-rng.IntN(3)] // operations take fewer operands than there are
	}
	return data
}

func TestClusterCIDRAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 150, 1000) {
		replayCluster(t, randomClusterTrace(rand.New(rand.NewPCG(seed, 1)), 60))
	}
}

func FuzzClusterCIDR(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(randomClusterTrace(rand.New(rand.NewPCG(seed, 2)), 30))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // the model is quadratic
		}
		replayCluster(t, data)
	})
}

// Whatever the bytes, Restore returns an error, or an allocator that passes its own
// check and has one binary form. It looks at a number of trie nodes that is linear in
// the length of the bytes, which are framed so that they get past the checksum.
func FuzzClusterCIDRSnapshot(f *testing.F) {
	for seed := range uint64(8) {
		r := &clusterReplay{t: f, m: model.NewClusterCIDRs(false), config: nodeipam.Config{ByLabels: true}}
		r.a = r.fresh()
		tr := model.NewTrace(randomClusterTrace(rand.New(rand.NewPCG(seed, 3)), 20))
		for tr.More() {
			if op := tr.Op(12); op != 10 {
				r.step(op, tr)
			}
		}
		data := r.bytes(r.a)
		f.Add([]byte(data[9 : len(data)-4]))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := wire.Seal(append([]byte("nodeipam\x01"), body...), 0)
		before := invariant.Steps()
		a, err := nodeipam.Restore(data)
		if steps := invariant.Steps() - before; steps > 300*uint64(len(data)) {
			t.Fatalf("%d steps for %d bytes", steps, len(data))
		}
		if err != nil {
			if !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		again, err := a.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		b, err := nodeipam.Restore(again)
		if err != nil {
			t.Fatal(err)
		}
		if once, _ := b.MarshalBinary(); !bytes.Equal(once, again) {
			t.Fatal("two binary forms")
		}
	})
}
