package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	core "github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/check"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// damages returns what may become of a record: it is lost, its value cut, longer or another, its key doubled or cut short.
func damages(r store.Record) map[string]store.Op {
	ops := map[string]store.Op{
		"lost":    {Kind: store.Delete, Key: r.Key},
		"longer":  {Kind: store.Put, Key: r.Key, Value: r.Value + "x"},
		"doubled": {Kind: store.Put, Key: r.Key[:1] + "\x01" + r.Key[1:], Value: r.Value},
	}
	if r.Value != "" {
		ops["emptied"] = store.Op{Kind: store.Put, Key: r.Key}
		ops["cut"] = store.Op{Kind: store.Put, Key: r.Key, Value: r.Value[:len(r.Value)-1]}
	}
	for n := 1; n < len(r.Key); n++ {
		if cut := r.Key[:n]; cut != record.CatalogKey && cut != record.PoolsKey {
			ops[fmt.Sprint("key of ", n)] = store.Op{Kind: store.Put, Key: cut, Value: r.Value}
		}
	}
	return ops
}

// TestDamageOfEveryRecord damages each record of a world with every kind of record in each way: the check names it, the repair mends it,
// and nothing in use is released, by any of them. What nothing else tells, the pools, stays damaged.
func TestDamageOfEveryRecord(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range busy(t).list(store.Range{}) {
		kind := r.Key[:1]
		if seen[kind] && testing.Short() {
			continue // one of each kind
		}
		seen[kind] = true
		for how, op := range damages(r) {
			w := busy(t)
			w.leaves()
			uses, at := w.used(), fmt.Sprintf("%s %q", how, r.Key)
			op.Expect = store.AnyRevision
			before := w.list(store.Range{})
			if _, err := w.store.Commit(bg, []store.Op{op}); err != nil {
				t.Fatal(err)
			}
			rep, err := w.Operator().Check(bg, slices.Values(uses))
			if err != nil || len(rep.Problems) == 0 {
				t.Errorf("%s: %v, %v", at, rep, err)
				continue
			}
			// Without its root the catalog is one that a copy has not finished, and the blocks are outside of every pool.
			if !(kind == record.KindCatalog && op.Key == r.Key) && !slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool { return strings.HasSuffix(p.Key, op.Key) }) {
				t.Errorf("%s: not named by %v", at, rep.Problems)
			}
			e := w.engine(w.store)
			for range 4 {
				if _, err := e.Operator().Repair(bg, rep.Repair); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				if rep, err = e.Operator().Check(bg, slices.Values(uses)); err != nil {
					t.Fatal(err)
				}
			}
			if kind == record.KindCatalog && op.Key == r.Key {
				if len(rep.Problems) == 0 && how != "longer" {
					t.Errorf("%s: nothing is left", at)
				}
				w.restore(before, record.CatalogKey, record.PoolsKey)
			} else {
				for _, p := range rep.Problems {
					if kind == record.KindAddress && op.Key == r.Key && p.Kind == audit.OtherHandle {
						continue // nothing tells which handle it was
					}
					if p.Kind != audit.Damaged || len(rep.Repair) > 0 || op.Key == r.Key {
						t.Errorf("%s: left %s", at, p)
					}
				}
			}
			w.holds(at, uses)
		}
	}
	for _, kind := range strings.Split(check.BlockKinds+record.KindAged+record.KindMemo+record.KindCatalog+record.KindBlock+record.KindAddress+record.KindOwner+record.KindPage, "") {
		if !seen[kind] {
			t.Errorf("no record of kind %q", kind)
		}
	}
}

// restore puts records back as they were.
func (w *world) restore(was []store.Record, keys ...string) {
	w.t.Helper()
	for _, r := range was {
		if slices.Contains(keys, r.Key) {
			if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: r.Key, Value: r.Value, Expect: store.AnyRevision}}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// holds fails the test if the records of an address in use and of its block do not both say that it is held.
func (w *world) holds(what string, uses []audit.InUse) {
	w.t.Helper()
	for _, u := range uses {
		recs := w.list(store.Range{From: record.AddressKey(u.Address), To: record.AddressKey(u.Address) + "\x00"})
		if len(recs) != 1 {
			w.t.Errorf("%s: %s in use has no record", what, u.Address)
			continue
		}
		a, bits, err := core.DecodeAddress(recs[0].Value)
		p, _ := u.Address.Prefix(bits)
		of := w.list(store.Range{From: record.BlockKey(record.KindBlock, p), To: record.BlockKey(record.KindBlock, p) + "\x00"})
		if err != nil || a.Cooling || len(of) != 1 {
			w.t.Errorf("%s: %s in use: %v, block %v, %v", what, u.Address, a, of, err)
			continue
		}
		b, err := core.Decode(p, of[0].Value)
		if err != nil {
			w.t.Errorf("%s: %s: %v", what, p, err)
			continue
		}
		x, _ := b.Ordinal(u.Address)
		if st, _ := b.Look(x); st != core.Held {
			w.t.Errorf("%s: %s in use is not held by its block", what, u.Address)
		}
	}
}

// problemsOf returns the problems of a check, each as its kind and its key.
func (w *world) problemsOf() (got []string) {
	w.t.Helper()
	rep, err := w.Operator().Check(bg, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range rep.Problems {
		got = append(got, fmt.Sprintf("%s %q", p.Kind, p.Key))
	}
	return got
}

// TestDamageThatNothingPointsTo: records to which no block and no index points are found.
func TestDamageThatNothingPointsTo(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	a := want("h", 2, "")
	als := w.assign(a).V4
	whole := w.list(store.Range{})
	nobody, noOwner := record.OwnerKey(alloc.HostOwner("nobody")), record.KindOwner+"\xff"
	first := record.AddressKey(als[0].Address)
	outside, stray := record.AddressKey(ip("11.0.0.1")), core.Address{Holder: core.Holder{Seq: 1}}
	for name, c := range map[string]struct {
		op   store.Op
		want []string
	}{
		"the address of no handle":     {store.Op{Kind: store.Delete, Key: first}, []string{fmt.Sprintf("%s %q", audit.LostAddress, first)}},
		"the number of no owner":       {store.Op{Kind: store.Put, Key: nobody, Value: "?"}, []string{fmt.Sprintf("%s %q", audit.WrongOwner, nobody)}},
		"a number of nobody":           {store.Op{Kind: store.Put, Key: nobody, Value: "\x01\x00"}, []string{fmt.Sprintf("%s %q", audit.WrongOwner, nobody)}},
		"a key that names no owner":    {store.Op{Kind: store.Put, Key: noOwner}, []string{fmt.Sprintf("%s %q", audit.StaleIndex, noOwner)}},
		"no address before":            {store.Op{Kind: store.Put, Key: record.KindAddress + "\x01"}, []string{fmt.Sprintf("%s %q", audit.Damaged, record.KindAddress+"\x01")}},
		"an address of a block of /33": {store.Op{Kind: store.Put, Key: outside, Value: string(stray.Append(nil, 33))}, []string{fmt.Sprintf("%s %q", audit.Damaged, outside)}},
		"no address behind":            {store.Op{Kind: store.Put, Key: record.KindAddress + "6zz"}, []string{fmt.Sprintf("%s %q", audit.Damaged, record.KindAddress+"6zz")}},
	} {
		c.op.Expect = store.AnyRevision
		if _, err := w.store.Commit(bg, []store.Op{c.op}); err != nil {
			t.Fatal(err)
		}
		if got := w.problemsOf(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		w.remove(c.op.Key)
		w.restore(whole, c.op.Key)
		w.check()
	}
}

// TestRepairedBlockIsRead: a block whose lost address was repaired is read by every call, with an engine that has nothing in its cache.
func TestRepairedBlockIsRead(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	als := w.assign(want("h", 3, "p")).V4
	w.remove(record.AddressKey(als[1].Address))
	rep, err := w.Operator().Check(bg, nil)
	if err == nil {
		_, err = w.Operator().Repair(bg, rep.Repair)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for b, err := range w.engine(w.store).Operator().Blocks(bg, netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(slices.Collect(b.All()))
	}
	if n != 3 {
		t.Errorf("%d addresses are held, want 3", n)
	}
}

// TestStrayInOverlappingBlocks: the record of a free address is that of one of two overlapping blocks, the last that contains it.
func TestStrayInOverlappingBlocks(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.leaves()
	big, small := mustBlock(t, "10.0.0.0/26", block.Options{}), mustBlock(t, "10.0.0.32/28", block.Options{})
	stray := core.Address{Holder: core.Holder{Seq: 1}}
	ops := []store.Op{
		{Kind: store.Put, Key: record.AddressKey(ip("10.0.0.5")), Value: string(stray.Append(nil, 26)), Expect: store.AnyRevision},
		{Kind: store.Put, Key: record.AddressKey(ip("10.0.0.33")), Value: string(stray.Append(nil, 28)), Expect: store.AnyRevision},
	}
	for _, b := range []*block.Block{big, small} {
		ops = append(ops, store.Op{Kind: store.Put, Key: record.BlockKey(record.KindBlock, b.Prefix()), Value: codedBlock(b), Expect: store.AnyRevision})
	}
	if _, err := w.store.Commit(bg, ops); err != nil {
		t.Fatal(err)
	}
	rep, err := w.Operator().Check(bg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range rep.Problems {
		if p.Kind == audit.StrayAddress || p.Kind == audit.Overlapping {
			got = append(got, fmt.Sprint(p.Kind, " ", p.Prefix, " ", p.Addr))
		}
	}
	if want := []string{"overlapping 10.0.0.32/28 invalid IP", "stray address 10.0.0.0/26 10.0.0.5", "stray address 10.0.0.32/28 10.0.0.33"}; !slices.Equal(got, want) || rep.Blocks != 2 || rep.Allocations != 0 {
		t.Errorf("%q, want %q; %d blocks, %d allocations", got, want, rep.Blocks, rep.Allocations)
	}
}

// TestDamagedPageOfAPool: a page of a pool that cannot be read is no page of a pool without blocks: the update is refused, and the size
// that drains is kept.
func TestDamagedPageOfAPool(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	w.assign(want("h", 1, "p"))
	if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/24", 28)); err != nil {
		t.Fatal(err)
	}
	page := w.list(store.Range{From: record.KindPage, To: record.EndOf(record.KindPage)})[0]
	for value, want := range map[string]error{
		"": ipalloc.ErrCorrupt, page.Value[:len(page.Value)-1]: ipalloc.ErrCorrupt, page.Value + "x": ipalloc.ErrCorrupt,
		"\x00" + page.Value[1:]: ipalloc.ErrVersion, "\x09" + page.Value[1:]: ipalloc.ErrVersion,
	} {
		w.restore([]store.Record{{Key: page.Key, Value: value}}, page.Key)
		if err := w.engine(w.store).UpdatePool(bg, poolOf("a", "10.0.0.0/24", 29)); !errors.Is(err, want) {
			t.Errorf("%q: %v", value, err)
		}
	}
	w.restore([]store.Record{page}, page.Key)
	if pools, err := w.Pools(bg); err != nil || pools[0].BlockBits != 28 || !slices.Equal(pools[0].Draining, []int{26}) {
		t.Errorf("%+v, %v", pools, err)
	}
	if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/24", 29)); err != nil {
		t.Fatal(err)
	}
}

// TestKeyOfAPageOfAPool: a key between those of the pages of a pool that names none is damage to an update of the pool.
func TestKeyOfAPageOfAPool(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/16", 26))
	w.leaves()
	w.assign(want("h", 1, "p"))
	if err := w.UpdatePool(bg, poolOf("a", "10.0.0.0/16", 28)); err != nil {
		t.Fatal(err)
	}
	page := w.list(store.Range{From: record.KindPage, To: record.EndOf(record.KindPage)})[0]
	key := page.Key + "\x00"
	w.restore([]store.Record{{Key: key, Value: page.Value}}, key)
	w.remove(page.Key)
	if err := w.engine(w.store).UpdatePool(bg, poolOf("a", "10.0.0.0/16", 29)); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("key %q: %v", key, err)
	}
}

// TestAddressOfAnImpossibleBlock: the record of an IPv4 address whose block would be longer than an address is damage to the calls
// that read it alone.
func TestAddressOfAnImpossibleBlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	w.leaves()
	at := w.assign(want("h", 1, "p")).V4[0].Address
	rec, err := w.store.Get(bg, nil, record.AddressKey(at))
	if err != nil {
		t.Fatal(err)
	}
	a, length, err := core.DecodeAddress(rec[0].Value)
	if err != nil || length != 28 {
		t.Fatal(length, err)
	}
	for _, length := range []int{28, 32, 33, 128} {
		w.restore([]store.Record{{Key: rec[0].Key, Value: string(a.Append(nil, length))}}, rec[0].Key)
		_, byHandle := w.engine(w.store).IPsByHandle(bg, "p")
		for _, err := range []error{byHandle, last(w.engine(w.store).Allocations(bg, netip.Prefix{}))} {
			if (err == nil) != (length <= 32) || err != nil && !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("a block of /%d: %v", length, err)
			}
		}
	}
}

// TestCoolingInALostBlock: the host of an address that cools is no former owner of the block that a repair makes again, and neither is
// one that had borrowed from it.
func TestCoolingInALostBlock(t *testing.T) {
	w := newWorld(t, alloc.Config{}, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28, Cooldown: time.Hour})
	w.assign(want("gone", 1, "cools"))
	b := w.blocksOf("gone")[0]
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: b.Addr().Next().Next(), Owner: alloc.HostOwner("stays"), Handle: "p"}); err != nil {
		t.Fatal(err)
	}
	w.releaseHandle("cools")
	w.remove(record.BlockKey(record.KindBlock, b))
	for range 3 {
		rep, err := w.Operator().Check(bg, nil)
		if err == nil {
			_, err = w.Operator().Repair(bg, rep.Repair)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.check()
	rec, err := w.store.Get(bg, nil, record.BlockKey(record.KindBlock, b))
	if err != nil {
		t.Fatal(err)
	}
	made := (*core.Block)(mustBlock(t, b.String(), block.Options{}))
	if err := made.Decode(b, rec[0].Value); err != nil || made.Former() != "" || made.Used() != 1 || made.Cooling() != 1 {
		t.Errorf("the former owners are %q, %v", made.Former(), err)
	}
}
