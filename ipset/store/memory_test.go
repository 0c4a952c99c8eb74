package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// TestSortedAgainstMap drives the table and a map with the same operations at sizes around the chunk limits.
func TestSortedAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, space := range []int{1, 10, 255, 256, 257, 5000} {
		m := NewMemory()
		want := map[string]uint64{}
		for step := range 20000 {
			k := fmt.Sprintf("%05d", r.IntN(space))
			if growing := step/4000%2 == 0; r.IntN(10) < 7 == growing {
				m.rev++
				var w place
				m.table.get(&w, k)
				m.table.put(&w, &Record{Key: k, Rev: m.rev})
				want[k] = m.rev
			} else {
				_, had := want[k]
				var w place
				m.table.get(&w, k)
				if w.found != had {
					t.Fatalf("get(%s) != %v", k, had)
				}
				if had {
					m.table.delete(&w)
				}
				delete(want, k)
			}
			if step%997 == 0 {
				compareTable(t, m, want)
			}
		}
		compareTable(t, m, want)
	}
}

func compareTable(t *testing.T, m *Memory, want map[string]uint64) {
	t.Helper()
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 0, len(want))
	for k := range want {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, rg := range []Range{{}, {From: "00100", To: "00200"}, {From: "00003", Limit: 7}, {To: "00300", Limit: 5, Reverse: true}, {From: "00290", To: "00300", Reverse: true}, {Limit: 3, Reverse: true}} {
		var sel []string
		for _, k := range keys {
			if k >= rg.From && (rg.To == "" || k < rg.To) {
				sel = append(sel, k)
			}
		}
		if rg.Reverse {
			slices.Reverse(sel)
		}
		if rg.Limit > 0 && len(sel) > rg.Limit {
			sel = sel[:rg.Limit]
		}
		got := m.table.scan(nil, rg)
		if len(got) != len(sel) {
			t.Fatalf("scan(%+v): %d records, want %d", rg, len(got), len(sel))
		}
		for i, rec := range got {
			if rec.Key != sel[i] || rec.Rev != want[rec.Key] {
				t.Fatalf("scan(%+v)[%d] = %v, want %s", rg, i, rec, sel[i])
			}
		}
	}
}

// TestListsOverManyNodes lists both ways in a table of several nodes, from one to the next.
func TestListsOverManyNodes(t *testing.T) {
	m, want := NewMemory(), make(map[string]uint64)
	var keys []string
	for len(m.table.nodes) < 3 {
		ops := make([]Op, 1000)
		for i := range ops {
			ops[i] = Op{Kind: Put, Key: fmt.Sprintf("%05d", len(keys))}
			keys = append(keys, ops[i].Key)
		}
		rev, err := m.Commit(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			want[op.Key] = rev
		}
	}
	compareTable(t, m, want)
	for node, first := range m.table.froms[1:] { // each list begins in one node and ends in the other
		at, _ := slices.BinarySearch(keys, first)
		r := Range{From: keys[at-50], To: keys[at+50]}
		for _, r.Reverse = range []bool{false, true} {
			sel := slices.Clone(keys[at-50 : at+50])
			if r.Reverse {
				slices.Reverse(sel)
			}
			if got := m.table.scan(nil, r); !slices.EqualFunc(got, sel, func(rec Record, key string) bool { return rec.Key == key }) {
				t.Errorf("scan(%+v) at node %d: %d records, want %d in order", r, node+1, len(got), len(sel))
			}
		}
	}
}

func TestMemorySnapshot(t *testing.T) {
	ctx := context.Background()
	m := NewMemory()
	for i := range 1000 {
		if _, err := m.Commit(ctx, []Op{{Kind: Put, Key: fmt.Sprintf("k%04d", i), Value: strings.Repeat("v", i%7), Expect: 0}}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	c, err := RestoreMemory(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	again, _ := c.MarshalBinary()
	if string(again) != string(data) {
		t.Error("snapshot of the restored store differs")
	}
	if rev, err := c.Commit(ctx, []Op{{Kind: Put, Key: "k0500", Expect: 501}}); err != nil || rev != 1001 {
		t.Errorf("commit after restoring: %d, %v", rev, err)
	}
	for _, i := range []int{0, 5, 20, len(data) / 2, len(data) - 1} {
		bad := slices.Clone(data)
		bad[i] ^= 1
		if _, err := RestoreMemory(bad); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := RestoreMemory(data[:i]); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := RestoreMemory(nil); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("nothing: %v", err)
	}
}

// TestRestoreOfHostileBytes changes a snapshot and repairs its checksum: what is accepted passes the check.
func TestRestoreOfHostileBytes(t *testing.T) {
	ctx := context.Background()
	m := NewMemory()
	for i := range 40 {
		m.Commit(ctx, []Op{{Kind: Put, Key: fmt.Sprintf("k%02d", i), Value: strings.Repeat("v", i%3), Expect: 0}})
	}
	data, _ := m.MarshalBinary()
	r := rand.New(rand.NewPCG(11, 12))
	refused := 0
	for range 5000 {
		bad := slices.Clone(data[:len(data)-4])
		for range 1 + r.IntN(3) {
			bad[len(snapshotMagic)+1+r.IntN(len(bad)-len(snapshotMagic)-1)] = byte(r.IntN(256))
		}
		bad = bad[:len(bad)-r.IntN(2)*r.IntN(20)]
		bad = wire.Seal(bad, 0)
		c, err := RestoreMemory(bad)
		if err != nil {
			if refused++; !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatal(err)
			}
			continue
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func TestMemoryWatchForgets(t *testing.T) {
	ctx := context.Background()
	m := NewMemory()
	for i := range history + 10 {
		m.Commit(ctx, []Op{{Kind: Put, Key: "k", Value: fmt.Sprint(i), Expect: AnyRevision}})
	}
	for ev, err := range m.Watch(ctx, 5, "k") {
		if !errors.Is(err, ipalloc.ErrOutOfRange) {
			t.Fatalf("watch from a forgotten revision: %v, %v", ev, err)
		}
	}
	for ev, err := range m.Watch(ctx, 10, "k") {
		if err != nil || ev.Rev != 11 || ev.Changes[0].Value != "10" {
			t.Fatalf("watch from the oldest revision: %+v, %v", ev, err)
		}
		break
	}
}

// Every cut of a snapshot behind a right checksum, a number that is not in its shortest form, records out of order and a newer
// version are refused.
func TestRestoreRefuses(t *testing.T) {
	ctx := context.Background()
	m := NewMemory()
	for i := range 20 {
		if _, err := m.Commit(ctx, []Op{{Kind: Put, Key: fmt.Sprintf("k%02d", i), Value: strings.Repeat("v", i), Expect: 0}}); err != nil {
			t.Fatal(err)
		}
	}
	data, _ := m.MarshalBinary()
	body := data[:len(data)-4]
	for n := range body {
		if _, err := RestoreMemory(wire.Seal(slices.Clone(body[:n]), 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("cut to %d bytes of %d: %v", n, len(body), err)
		}
	}
	if _, err := RestoreMemory(wire.Seal(append(slices.Clone(body), 0), 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	head := func(version byte) []byte { return append([]byte(snapshotMagic), version) }
	for name, tt := range map[string]struct {
		bytes []byte
		want  error
	}{
		"no records":          {append(head(1), 7, 0), nil},
		"one":                 {append(head(1), 7, 1, 1, 'a', 1, 'v', 7), nil},
		"a newer version":     {append(head(2), 7, 0), ipalloc.ErrVersion},
		"revision, long form": {append(head(1), 0x87, 0, 0), ipalloc.ErrCorrupt},
		"count, long form":    {append(head(1), 7, 0x80, 0), ipalloc.ErrCorrupt},
		"length, long form":   {append(head(1), 7, 1, 0x81, 0, 'a', 1, 'v', 7), ipalloc.ErrCorrupt},
		"revision 0":          {append(head(1), 7, 1, 1, 'a', 1, 'v', 0), ipalloc.ErrCorrupt},
		"a later revision":    {append(head(1), 7, 1, 1, 'a', 1, 'v', 8), ipalloc.ErrCorrupt},
		"no key":              {append(head(1), 7, 1, 0, 1, 'v', 7), ipalloc.ErrCorrupt},
		"a key twice":         {append(head(1), 7, 2, 1, 'a', 0, 1, 1, 'a', 0, 1), ipalloc.ErrCorrupt},
		"order":               {append(head(1), 7, 2, 1, 'b', 0, 1, 1, 'a', 0, 1), ipalloc.ErrCorrupt},
	} {
		got, err := RestoreMemory(wire.Seal(tt.bytes, 0))
		if e := (*ipalloc.Error)(nil); !errors.Is(err, tt.want) || err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && got.Check() != nil {
			t.Errorf("%s: %v", name, got.Check())
		}
	}
}

// TestMemoryForgetsLargeCommits: what the last commits were decides what is kept for watches, not how large an earlier one was.
func TestMemoryForgetsLargeCommits(t *testing.T) {
	m := NewMemory()
	commit := func(kind Kind, from, n int) {
		t.Helper()
		var ops []Op
		for i := range n {
			ops = append(ops, Op{Kind: kind, Key: fmt.Sprint("k", from+i), Expect: AnyRevision})
		}
		if _, err := m.Commit(context.Background(), ops); err != nil {
			t.Fatal(err)
		}
	}
	for i := range history {
		commit(Put, i, 200)
	}
	for i := range history {
		commit(Put, i, 1+i%3)
	}
	for i, ev := range m.ring {
		if cap(ev.Changes) > spare {
			t.Fatalf("place %d has room for %d changes", i, cap(ev.Changes))
		}
	}
	for i := range 2 * history { // a place that stays has nothing behind its end
		commit(Put, i, 20-19*(i/history))
	}
	for i, ev := range m.ring {
		for _, r := range ev.Changes[len(ev.Changes):cap(ev.Changes)] {
			if r != (Record{}) {
				t.Fatalf("place %d keeps %+v of an earlier commit", i, r)
			}
		}
	}
}
