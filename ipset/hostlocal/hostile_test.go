package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestHostileRecords replaces every record by damaged ones and adds keys that no engine
// writes. Every operation returns ErrCorrupt, ErrVersion for another version than its own, or an answer that does not depend on the
// damage, and Check reports all damage that changes what is held.
func TestHostileRecords(t *testing.T) {
	base := newWorld(t)
	base.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29"), subnets("fd00::/64")}, Boot: "b1", Leases: true})
	for _, c := range []string{"a", "b", "c"} {
		if _, err := base.Add(ctx, eth0(c)); err != nil {
			t.Fatal(err)
		}
	}
	recs, _, err := base.store.List(ctx, store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	try := func(name string, noticed bool, key, value string) {
		t.Helper()
		db := store.NewMemory()
		for _, r := range recs {
			mustCommit(t, db, store.Op{Kind: store.Put, Key: r.Key, Value: r.Value, Expect: store.AnyRevision})
		}
		kind := store.Put
		if value == "" {
			kind = store.Delete
		}
		mustCommit(t, db, store.Op{Kind: kind, Key: key, Value: value, Expect: store.AnyRevision})
		w := &world{TB: t, store: db}
		for _, boot := range []string{"b1", "b2"} {
			w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29"), subnets("fd00::/64")}, Boot: boot, Leases: true})
			if err := w.Check(ctx); boot == "b1" && noticed && !unreadable(err) {
				t.Errorf("%s: Check: %v", name, err)
			}
			w.exercise(name)
		}
	}
	for _, r := range recs {
		kind, _ := base.split(r.Key)
		try(fmt.Sprintf("%q removed", r.Key), kind != kindHeader && kind != kindCursor, r.Key, "")
		for i := range r.Value {
			flipped := []byte(r.Value)
			flipped[i] ^= 0x81
			// Nothing else tells what a boot is called, its epoch, and what a set gave last.
			alone := kind == kindHeader || kind == kindCursor || kind == kindAttachment && i == 1
			try(fmt.Sprintf("%q, byte %d of %q", r.Key, i, r.Value), !alone, r.Key, string(flipped))
			if i > 0 {
				try(fmt.Sprintf("%q, %d bytes of %q", r.Key, i, r.Value), kind != kindHeader, r.Key, r.Value[:i])
			}
		}
		if kind == kindAttachment {
			try(fmt.Sprintf("%q, of an epoch to come", r.Key), true, r.Key, r.Value[:1]+"\x05"+r.Value[2:])
		}
		try(fmt.Sprintf("%q, a byte more", r.Key), kind != kindHeader, r.Key, r.Value+"\x00")
		try(fmt.Sprintf("%q, much more", r.Key), kind != kindHeader, r.Key, strings.Repeat("\xff", 5000))
	}
	for _, key := range []string{"", "h\x00", "t", "t\x00", "tx", "t\x00eth0", "a", "a4", "a4abc", "a6abc", "a4abcde", "a9", "p", "p4", "p4abcdef", "p6", "c", "cabc", "cabcde", "z"} {
		for _, value := range []string{"\x00", "\x02", "\x02\x01a4", encodeWord(7), encode(holding{epoch: 1, addresses: addrs("10.0.0.6")})} {
			try(fmt.Sprintf("key %q with %q", key, value), true, base.prefix+key, value)
		}
	}
}

// unreadable reports whether an error is that of a record which is damaged or of another version.
func unreadable(err error) bool {
	return errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, ipalloc.ErrVersion)
}

// TestHostileAttachmentKeys: a key that names no attachment is damage. Export and GC must
// not read it as a holding of an attachment without a name.
func TestHostileAttachmentKeys(t *testing.T) {
	for _, rest := range []string{"t", "tx", "t\x00", "t\x00eth0", "tc\x00eth0\x00", "t" + strings.Repeat("x", maxName+1) + "\x00eth0"} {
		w := newWorld(t, subnets("10.0.0.0/29"))
		w.add(eth0("a"), nil, "10.0.0.2")
		key := w.prefix + rest
		mustCommit(t, w.store, store.Op{Kind: store.Put, Key: key, Value: encode(holding{addresses: addrs("10.0.0.6")}), Expect: store.AnyRevision})
		if s, err := w.Export(ctx); !errors.Is(err, ipalloc.ErrCorrupt) || len(s.Holdings) > 0 {
			t.Errorf("%q: Export %v, %v", rest, s, err)
		}
		if freed, err := w.GC(ctx, GCArgs{}); !errors.Is(err, ipalloc.ErrCorrupt) || len(freed) > 0 {
			t.Errorf("%q: GC %v, %v", rest, freed, err)
		}
		mustCommit(t, w.store, store.Op{Kind: store.Delete, Key: key, Expect: store.AnyRevision})
		w.del(eth0("a"), "10.0.0.2")
	}
}

// TestAddReadsWhatIsHeld: a damaged record of the attachment, or of its container, ends Add, which leaves the record as it is.
func TestAddReadsWhatIsHeld(t *testing.T) {
	for _, who := range []Attachment{eth0("a"), {Container: "a"}} {
		w := newWorld(t, subnets("10.0.0.0/29"))
		w.add(eth0("b"), nil, "10.0.0.2")
		key := w.attachment(who)
		mustCommit(t, w.store, store.Op{Kind: store.Put, Key: key, Value: "\x01\x02", Expect: 0})
		if got, err := w.Add(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%v: %v, %v", who, got, err)
		}
		recs, err := w.store.Get(ctx, nil, key)
		if err != nil || recs[0].Value != "\x01\x02" {
			t.Errorf("%v: the record is %q now, %v", who, recs, err)
		}
		mustCommit(t, w.store, store.Op{Kind: store.Delete, Key: key, Expect: store.AnyRevision})
	}
}

// TestVerifyOfADamagedAttachment: Verify fails if the record of the attachment cannot be read, whatever addresses it lists.
func TestVerifyOfADamagedAttachment(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/29"))
	w.add(eth0("a"), nil, "10.0.0.2")
	key := w.attachment(eth0("a"))
	recs, err := w.store.Get(ctx, nil, key)
	if err != nil {
		t.Fatal(err)
	}
	whole := recs[0].Value
	for i := range len(whole) + 1 {
		damaged := whole[:i]
		if i == len(whole) {
			damaged = whole + "\x00"
		}
		mustCommit(t, w.store, store.Op{Kind: store.Put, Key: key, Value: damaged, Expect: store.AnyRevision})
		for _, listed := range []string{"10.0.0.2", "10.0.0.3"} {
			if err := w.Verify(ctx, eth0("a"), addrs(listed)...); !unreadable(err) {
				t.Errorf("%q, %s: %v", damaged, listed, err)
			}
		}
	}
	mustCommit(t, w.store, store.Op{Kind: store.Put, Key: key, Value: whole, Expect: store.AnyRevision})
}

func mustCommit(t *testing.T, s store.Store, op store.Op) {
	t.Helper()
	if _, err := s.Commit(ctx, []store.Op{op}); err != nil {
		t.Fatal(err)
	}
}

// exercise runs every operation.
func (w *world) exercise(name string) {
	w.Helper()
	ok := func(op string, err error) {
		w.Helper()
		if err != nil && !slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
			w.Errorf("%s: %s: %v", name, op, err)
		}
	}
	for _, c := range []string{"a", "d", "e"} {
		_, err := w.Add(ctx, eth0(c))
		ok("Add", err)
		_, err = w.Add(ctx, eth0(c), addrs("10.0.0.6")...)
		ok("Add", err)
		ok("Verify", w.Verify(ctx, eth0(c), addrs("10.0.0.2")...))
		_, err = w.Del(ctx, eth0(c))
		ok("Del", err)
	}
	ok("Status", w.Status(ctx))
	_, err := w.Export(ctx)
	ok("Export", err)
	_, err = w.Import(ctx, State{Holdings: []Holding{holds("z", "10.0.0.5", "10.0.0.4")}})
	ok("Import", err)
	_, err = w.GC(ctx, GCArgs{Valid: []Attachment{eth0("b")}})
	ok("GC", err)
	ok("Check", w.Check(ctx))
}

func FuzzRecords(f *testing.F) {
	f.Add("", "")
	f.Add("t", "\x02\x00")
	f.Fuzz(func(t *testing.T, key, value string) {
		db := store.NewMemory()
		mustCommit(t, db, store.Op{Kind: store.Put, Key: "Lnet\x00" + key, Value: value, Expect: 0})
		w := &world{TB: t, store: db}
		w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29"), subnets("fd00::/64")}, Boot: "b"})
		w.exercise(key)
	})
}

// TestFailingStore: every operation returns the store's error as it is.
func TestFailingStore(t *testing.T) {
	lost := errors.New("lost")
	w := newWorld(t)
	w.store = failing{w.store, lost}
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29")}})
	_, err := w.Add(ctx, eth0("a"))
	_, err2 := w.Del(ctx, eth0("a"))
	_, err3 := w.Export(ctx)
	_, err4 := w.GC(ctx, GCArgs{})
	for _, err := range []error{err, err2, err3, err4, w.Verify(ctx, eth0("a")), w.Status(ctx), w.Check(ctx)} {
		if !errors.Is(err, lost) {
			t.Error(err)
		}
	}
	w.store = store.NewMemory()
	w.open(Config{})
}

type failing struct {
	store.Store
	err error
}

func (f failing) Get(context.Context, []store.Record, ...string) ([]store.Record, error) {
	return nil, f.err
}

func (f failing) List(context.Context, store.Range) ([]store.Record, uint64, error) {
	return nil, 0, f.err
}
