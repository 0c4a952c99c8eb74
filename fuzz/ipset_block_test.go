package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var ipsetStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// blockPrefixes are the blocks a trace may choose from: one address, a few, a page, several pages.
var blockPrefixes = []string{"10.0.0.1/32", "10.0.0.0/31", "10.0.0.0/29", "10.0.0.64/26", "10.0.1.0/25", "fd00::/128", "fd00::8/125", "fd00::/120"}

const blockOps = 8

// blockReplay is the two sides of a replay.
type blockReplay struct {
	t        testing.TB
	p        netip.Prefix
	size     int
	now      time.Time
	b        *block.Block
	m        *model.IPSetBlock
	reserved netip.Prefix
	seen     map[alloc.Release]bool
}

// replayBlock runs a trace on a block and on its twin and compares every answer, and the state after every step.
func replayBlock(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	r := &blockReplay{t: t, p: netip.MustParsePrefix(blockPrefixes[tr.Op(len(blockPrefixes))]), now: ipsetStart, seen: make(map[alloc.Release]bool)}
	r.size = 1 << (r.p.Addr().BitLen() - r.p.Bits())
	head, tail := int(tr.Below(3)), int(tr.Below(2))
	b, err := block.New(r.p, block.Options{Head: uint64(head), Tail: uint64(tail), Claimed: r.now})
	if head+tail >= r.size {
		if !errors.Is(err, ipalloc.ErrInvalid) {
			t.Fatalf("%s with %d + %d reserved: %v", r.p, head, tail, err)
		}
		return
	}
	r.b, r.m = b, model.NewIPSetBlock(r.p, head, tail, r.now)
	for tr.More() {
		r.b.Advance(r.now, 7*time.Second)
		r.m.Advance(r.now, 7*time.Second)
		r.step(tr.Op(blockOps), tr)
		compareBlock(t, r.b, r.m)
	}
}

func (r *blockReplay) step(op int, tr *model.Trace) {
	switch op {
	case 0, 1:
		r.autoAssign(tr)
	case 2:
		r.assign(tr)
	case 3, 4:
		a, cool := r.address(tr), time.Duration(tr.Below(3))*5*time.Second
		want := alloc.WasFree
		if r.m.Held(a) {
			want = alloc.Released
			r.m.Drop(a, r.now, cool)
		}
		if o, err := r.b.Release(a, alloc.Guard{}, r.now, cool); o != want || err != nil {
			r.t.Fatalf("release %s: %v, %v, want %v", a, o, err, want)
		}
	case 5:
		r.now = r.now.Add(time.Duration(tr.Below(30)) * time.Second)
	case 6:
		bits := r.p.Bits() + int(tr.Below(uint64(r.p.Addr().BitLen()-r.p.Bits()+1)))
		r.reserved = netip.PrefixFrom(r.address(tr), bits).Masked()
	case 7: // through the records of a store and back
		e, err := ipset.New(store.NewMemory(), ipset.Options{Now: func() time.Time { return r.now }})
		if err == nil {
			err = e.AddPool(context.Background(), alloc.Pool{Name: "p", Prefix: r.p, BlockBits: r.p.Bits()})
		}
		if err == nil {
			err = e.Operator().ImportBlock(context.Background(), r.b)
		}
		if err == nil {
			var b *block.Block
			if b, err = e.Operator().BlockOf(context.Background(), r.p.Addr()); err == nil {
				r.b = b
			}
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *blockReplay) autoAssign(tr *model.Trace) {
	n := int(tr.Below(uint64(min(r.size, 9)) + 1))
	c, h := r.claim(tr)
	var set *netipx.IPSet
	if r.reserved.IsValid() {
		var sb netipx.IPSetBuilder
		sb.AddPrefix(r.reserved)
		set, _ = sb.IPSet()
	}
	got := r.b.AutoAssign(nil, n, c, r.now, set)
	want := r.m.Peek(n, func(a netip.Addr) bool { return r.reserved.IsValid() && r.reserved.Contains(a) })
	if !slices.EqualFunc(got, want, func(al alloc.Allocation, a netip.Addr) bool { return al.Address == a }) {
		r.t.Fatalf("assigned %v, want %v", got, want)
	}
	for _, al := range got {
		r.fresh(al)
		r.m.Take(al.Address, h)
	}
}

func (r *blockReplay) assign(tr *model.Trace) {
	a := r.address(tr)
	c, h := r.claim(tr)
	al, err := r.b.Assign(a, c, r.now)
	why := r.m.CanTake(a, c.Handle)
	want := map[string]error{"taken": ipalloc.ErrOccupied, "cooling": ipalloc.ErrCooling, "reserved": ipalloc.ErrReserved}[why]
	if !errors.Is(err, want) || (err == nil) != (why == "") {
		r.t.Fatalf("assign %s: %v, want %q", a, err, why)
	}
	if err == nil {
		r.fresh(al)
		r.m.Take(a, h)
	}
}

// address returns one of the block.
func (r *blockReplay) address(tr *model.Trace) netip.Addr {
	a := r.p.Addr()
	for range tr.Below(uint64(r.size)) {
		a = a.Next()
	}
	return a
}

// claim returns a handle, an attribute and perhaps a lease.
func (r *blockReplay) claim(tr *model.Trace) (alloc.Claim, model.IPSetHold) {
	v := tr.Uint()
	c := alloc.Claim{Handle: fmt.Sprint("h", v%5)}
	c.Attributes, _ = alloc.NewAttributes(map[string]string{"k": fmt.Sprint(v / 5 % 2)})
	h := model.IPSetHold{Handle: c.Handle, Since: r.now, Attr: fmt.Sprint(v / 5 % 2)}
	if v/10%3 == 0 {
		c.TTL = time.Duration(1+v/30%20) * time.Second
		h.Until = r.now.Add(c.TTL)
	}
	return c, h
}

// fresh verifies that an address never has a sequence number twice.
func (r *blockReplay) fresh(al alloc.Allocation) {
	k := alloc.Release{Address: al.Address, Guard: alloc.Guard{Seq: al.Seq}}
	if r.seen[k] {
		r.t.Fatalf("%s has sequence number %d again", al.Address, al.Seq)
	}
	r.seen[k] = true
}

// compareBlock compares a block with its twin.
func compareBlock(t testing.TB, b *block.Block, m *model.IPSetBlock) {
	t.Helper()
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if free := slices.Collect(b.FreeAddresses()); !slices.Equal(free, m.Free) {
		t.Fatalf("%s: free %v, want %v", m.Prefix, free, m.Free)
	}
	n := 0
	for al := range b.All() {
		holders := m.Holds[al.Address]
		if len(holders) == 0 {
			t.Fatalf("%s: %+v is free in the twin", m.Prefix, al)
		}
		h := holders[0]
		if h.Cooling != al.Cooling || h.Handle != al.Handle || !h.Until.Equal(al.Until) || !h.Since.Truncate(time.Second).Equal(al.Since) {
			t.Fatalf("%s: %+v, want %+v", m.Prefix, al, h)
		}
		if h.Host != "" && h.Host != al.Host.String() && !h.Cooling {
			t.Fatalf("%s: %+v, want %+v", m.Prefix, al, h)
		}
		if h.Attr != "" && al.Attributes.Map()["k"] != h.Attr {
			t.Fatalf("%s: %+v, want %+v", m.Prefix, al, h)
		}
		compareHolders(t, al, holders)
		n++
	}
	if n != len(m.Holds) || b.Used() != uint64(m.Used()) || b.Owner().String() != m.Owner {
		t.Fatalf("%s: %d addresses, %d held, owner %s; want %d, %d, %s", m.Prefix, n, b.Used(), b.Owner(), len(m.Holds), m.Used(), m.Owner)
	}
	if since, ok := b.Empty(); ok && !since.Equal(m.Since) {
		t.Fatalf("%s: empty since %v, want %v", m.Prefix, since, m.Since)
	}
}

// compareHolders compares the holders of an address with those of its twin.
func compareHolders(t testing.TB, al alloc.Allocation, want []model.IPSetHold) {
	t.Helper()
	got, h := slices.Collect(al.Holders()), want[0]
	same := func(x alloc.Allocation, y model.IPSetHold) bool {
		return x.Handle == y.Handle && (y.Host == "" || h.Cooling || x.Host.String() == y.Host) && x.Until.Equal(y.Until) && x.Since.Equal(y.Since.Truncate(time.Second))
	}
	if s := al.Share(); !slices.EqualFunc(got, want, same) || s.Max != h.Most || s.Key != h.Key {
		t.Fatalf("%s: shared as %+v, held by %+v, want %+v", al.Address, s, got, h)
	}
}

// FuzzBlock replays traces on a block and its twin, and reads any bytes as the records of a block and of an address.
func FuzzBlock(f *testing.F) {
	for i := range 8 {
		f.Add(randomBytes(uint64(i), 200))
	}
	for _, rec := range blockRecords(f) {
		if rec.Key[0] == 'a' || rec.Key[0] == 'b' {
			f.Add([]byte(rec.Value))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		recs := blockRecords(t)
		for i, rec := range recs {
			if rec.Key[0] == 'a' || rec.Key[0] == 'b' {
				readAnything(t, recs, i, string(data))
			}
		}
		replayBlock(t, data)
	})
}

// blockRecords returns the records of a store with one block in use.
func blockRecords(t testing.TB) []store.Record {
	db := store.NewMemory()
	e, err := ipset.New(db, ipset.Options{Now: func() time.Time { return ipsetStart }})
	if err == nil {
		err = e.AddPool(context.Background(), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28, Cooldown: time.Minute})
	}
	for i := range 4 {
		if err == nil {
			a := alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 2, Handle: fmt.Sprint("p", i), TTL: time.Duration(i%2) * time.Hour}
			_, err = e.AutoAssign(context.Background(), a)
		}
	}
	if err == nil {
		_, err = e.ReleaseByHandle(context.Background(), "p1")
	}
	if err != nil {
		t.Fatal(err)
	}
	recs, _, err := db.List(context.Background(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// readAnything puts a value in place of that of a record and looks at everything: a record that cannot be read is an error, and one
// that can goes with the others, or Check says so.
func readAnything(t *testing.T, recs []store.Record, i int, value string) {
	ctx, db := context.Background(), store.NewMemory()
	for j, rec := range recs {
		if j == i {
			rec.Value = value
		}
		if _, err := db.Commit(ctx, []store.Op{{Kind: store.Put, Key: rec.Key, Value: rec.Value}}); err != nil {
			t.Fatal(err)
		}
	}
	e, err := ipset.New(db, ipset.Options{Now: func() time.Time { return ipsetStart }, Retry: ipset.Retry{Attempts: 2}})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := e.Operator().Check(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sound, unread := true, ipalloc.ErrCorrupt
	if value != "" && value[0] != recs[i].Value[0] {
		unread = ipalloc.ErrVersion
	}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			sound = false
			if !errors.Is(err, unread) {
				t.Fatal(err)
			}
		} else if b.Check() != nil {
			sound = false
		}
	}
	if !sound && len(rep.Problems) == 0 {
		t.Fatalf("record %q cannot be read, or is wrong, and Check finds nothing", recs[i].Key)
	}
	e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 9, Partial: true})
	e.ReleaseByHandle(ctx, "p0")
	e.Utilization(ctx)
	e.Operator().Sweep(ctx, alloc.SweepArgs{})
}

// randomBytes returns n bytes that a seed gives.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 77))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestBlockAgainstTwin(t *testing.T) {
	for seed := range seeds.Each(t, 300, 300) {
		replayBlock(t, randomBytes(seed, 400))
	}
}
