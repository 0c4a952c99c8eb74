package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// recordsOf returns the keys and values of a journal that is not open, but those that only take room.
func recordsOf(t *testing.T, s *boltstore.Store, name string) map[string]string {
	t.Helper()
	table, err := s.OpenTable("journal/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	recs, _, err := table.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range recs {
		if !strings.HasPrefix(r.Key, "room") { // zeros
			out[r.Key] = r.Value
		}
	}
	return out
}

// put writes a record into a journal that is not open.
func put(t *testing.T, s *boltstore.Store, name string, records map[string]string) {
	t.Helper()
	table, err := s.OpenTable("journal/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	var ops []store.Op
	for k, v := range records {
		ops = append(ops, store.Op{Kind: store.Put, Key: k, Value: v, Expect: store.AnyRevision})
	}
	if _, err := table.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
}

// A snapshot that takes several commits is the same after a crash, is replaced, and leaves nothing behind when it is small
// again. Parts that a crash left over are removed, one that is missing is damage.
func TestSnapshotInParts(t *testing.T) {
	journal.Parts(t, 500)
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	openIt := func(s *boltstore.Store) *journal.Journal[*servicealloc.Ports] {
		return must[*servicealloc.Ports](t)(journal.OpenPorts(ctx, s, "ports", servicealloc.PortRange{First: 1, Last: 65535}))
	}
	j := openIt(s)
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 4 {
		err := j.Do(ctx, func(p *servicealloc.Ports) error {
			for range 3000 {
				_ = p.Allocate(uint16(1 + rnd.IntN(65535)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := snapshotOf(t, j)
		if k := openIt(crashed(t, s)); !bytes.Equal(want, snapshotOf(t, k)) {
			t.Fatalf("round %d: not the same after a crash", round)
		}
		j.Close()
		put(t, s, "ports", map[string]string{"part" + strings.Repeat("\x00", 16): "left over"})
		j = openIt(s) // which writes a snapshot
		if !bytes.Equal(want, snapshotOf(t, j)) {
			t.Fatalf("round %d: not the same when opened again", round)
		}
	}
	j.Close()
	recs := recordsOf(t, s, "ports")
	if n := len(snapshotOf(t, j)); len(recs) != 2+len(recs["snapshot"])/16 || len(recs) < 5 {
		t.Fatalf("%d bytes are %d records, the list of parts has %d bytes", n, len(recs), len(recs["snapshot"]))
	}
	c := crashed(t, s)
	table, err := c.OpenTable("journal/ports")
	if err != nil {
		t.Fatal(err)
	}
	for key := range recs {
		if strings.HasPrefix(key, "part") {
			if _, err := table.Commit(ctx, []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	table.Close()
	if _, err := journal.OpenPorts(ctx, c, "ports", servicealloc.PortRange{First: 1, Last: 65535}); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("without its parts: %v", err)
	}
	j = openIt(s)
	err = j.Do(ctx, func(p *servicealloc.Ports) error {
		for n := range slices.Values(slices.Collect(p.All())) {
			p.Release(n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	openIt(s).Close() // which writes a snapshot
	if recs := recordsOf(t, s, "ports"); len(recs) != 3 || len(recs["snapshot"]) != 16 {
		t.Errorf("%d records after it was emptied", len(recs))
	}
}

// Where there is no room for a snapshot, the journal is opened with its log, and changed as soon as there is room for that.
func TestOpenWithoutRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	opts, ctx := boltstore.Options{NoSync: true, MaxSize: 1 << 20}, t.Context()
	openIt := func(s *boltstore.Store) *journal.Journal[*servicealloc.Registry] {
		return must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 100}, servicealloc.LowestFirst()))
	}
	release := func(r *servicealloc.Registry) error {
		_, err := r.Release("0"+strings.Repeat("x", 1000), 0)
		return err
	}
	s := reopen(t, path, opts)
	j := openIt(s)
	for i := range 50 {
		err := j.Do(ctx, func(r *servicealloc.Registry) error {
			_, err := r.Allocate(fmt.Sprint(i)+strings.Repeat("x", 1000), servicealloc.Request{Ports: []servicealloc.Port{{}}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; ; i++ { // until there is room for little
		if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: fmt.Sprint(i), Value: string(make([]byte, 12_000))}}); err != nil {
			break
		}
	}
	want := snapshotOf(t, j)
	s.Close()
	s = reopen(t, path, opts)
	j = openIt(s)
	if !bytes.Equal(want, snapshotOf(t, j)) {
		t.Error("not the same when opened again")
	}
	if err := j.Do(ctx, release); err != nil {
		t.Errorf("a change that fits into the log: %v", err)
	}
	want = snapshotOf(t, j)
	s.Close()
	s = reopen(t, path, opts)
	if !bytes.Equal(want, snapshotOf(t, openIt(s))) {
		t.Error("not the same when opened once more")
	}
}

// A log that hands out one child twice, or does not say where the cursor is, is damaged.
func TestLogThatContradictsItself(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	for range 2 {
		if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	first := "log" + strings.Repeat("\x00", 8)
	put(t, s, "set", map[string]string{first[:len(first)-1] + "\x01": recordsOf(t, s, "set")[first]})
	if _, err := journal.OpenSet(ctx, s, "set", pool, 24); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%v", err)
	}
	put(t, s, "set", map[string]string{first[:len(first)-1] + "\x01": `{"version":1,"changes":[{"op":"allocate","prefixes":["10.0.1.0/24"]}]}`})
	if _, err := journal.OpenSet(ctx, s, "set", pool, 24); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("without the cursor: %v", err)
	}
}

// Owners are bytes: those that are not UTF-8, and one whose name is what JSON would make of them, stay apart.
func TestOwnersOfAnyBytes(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	openIt := func(s *boltstore.Store) *journal.Journal[*servicealloc.Registry] {
		return must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 100}, servicealloc.LowestFirst()))
	}
	j := openIt(s)
	for _, owner := range []string{"ns/\xff", "ns/\xfe", "ns/\ufffd", "\x00<\u2028>&\"\\", `{"bytes":"AA=="}`, "\xc3"} {
		_, err := journal.Do(ctx, j, func(r *servicealloc.Registry) (servicealloc.Grant, error) {
			return r.Allocate(owner, servicealloc.Request{Ports: []servicealloc.Port{{}}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if k := openIt(crashed(t, s)); !bytes.Equal(snapshotOf(t, j), snapshotOf(t, k)) {
		k.View(func(r *servicealloc.Registry) {
			for g := range r.All() {
				t.Errorf("after a crash %q has %v", g.Owner, g.Ports)
			}
		})
	}
}

// The cursor is a part of the state: setting it is in the file when Do returns.
func TestCursorIsInTheFile(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	for _, at := range []string{"10.0.7.0/24", "10.0.3.0/24", "10.0.0.0/24"} {
		want := netip.MustParsePrefix(at)
		if err := j.Do(ctx, func(a *cidrset.Set) error { return a.SetCursor(want) }); err != nil {
			t.Fatal(err)
		}
		k := must[*cidrset.Set](t)(journal.OpenSet(ctx, crashed(t, s), "set", pool, 24))
		k.View(func(a *cidrset.Set) {
			if a.Cursor() != want {
				t.Errorf("cursor %v, want %v", a.Cursor(), want)
			}
		})
	}
	rev := func() uint64 {
		_, rev, err := s.List(ctx, store.Range{})
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	before := rev()
	if err := j.Do(ctx, func(a *cidrset.Set) error { return a.SetCursor(a.Cursor()) }); err != nil || rev() != before {
		t.Errorf("a call that changes nothing: %v, revision %d after %d", err, rev(), before)
	}
}

// A transaction that outlives its registry, because the journal could not write or was closed, says so when it is ended.
func TestTransactionOfAReplacedRegistry(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true, MaxSize: 1 << 20}), t.Context()
	j := must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 65535}))
	begin := func() *servicealloc.Tx {
		tx, err := journal.Do(ctx, j, func(r *servicealloc.Registry) (*servicealloc.Tx, error) {
			tx, _, err := r.Begin("web", servicealloc.Request{Ports: []servicealloc.Port{{}, {}}})
			return tx, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	tx := begin()
	large := servicealloc.Grant{Owner: noise(1 << 20), Ports: []servicealloc.Port{{Number: 5}}}
	if err := j.Do(ctx, func(r *servicealloc.Registry) error { r.Load([]servicealloc.Grant{large}); return nil }); !errors.Is(err, boltstore.ErrNoSpace) {
		t.Fatal(err)
	}
	for _, end := range []func() error{tx.Rollback, tx.Commit} {
		if err := j.Do(ctx, func(*servicealloc.Registry) error { return end() }); !errors.Is(err, ipalloc.ErrClosed) {
			t.Errorf("after a failed write: %v", err)
		}
	}
	if _, err := journal.Do(ctx, j, func(r *servicealloc.Registry) (servicealloc.Grant, error) { return r.Release("web", 0) }); err != nil {
		t.Error(err)
	}
	tx = begin()
	j.Close()
	if err := tx.Commit(); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
