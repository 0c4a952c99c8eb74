package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// twin is a memory store and what it must hold.
type twin struct {
	t    testing.TB
	m    *Memory
	want map[string]Record
}

func newTwin(t testing.TB) *twin { return &twin{t, NewMemory(), map[string]Record{}} }

// commit makes a commit and applies it to the map.
func (w *twin) commit(ops ...Op) {
	rev, err := w.m.Commit(context.Background(), ops)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, op := range ops {
		switch op.Kind {
		case Put:
			w.want[op.Key] = Record{Key: op.Key, Value: op.Value, Rev: rev}
		case Delete:
			delete(w.want, op.Key)
		}
	}
}

// Two records at one place are damage, also where the counts of bytes agree.
func TestCheckOfSharedBytes(t *testing.T) {
	w := newTwin(t)
	w.commit(Op{Kind: Put, Key: "a1", Value: "value"}, Op{Kind: Put, Key: "a2", Value: "value"})
	p := w.m.table.nodes[0].pages[0]
	if err := p.check(); err != nil || p.n != 2 {
		t.Fatal(p.n, err)
	}
	was := p.slot(1)
	for _, at := range []int{p.slot(0), p.slot(0) + 1, int(p.end)} {
		if p.setSlot(1, at); w.m.Check() == nil || p.check() == nil {
			t.Errorf("record 1 at %d, as record 0: %v", at, p.check())
		}
	}
	p.setSlot(1, was)
	if err := w.m.Check(); err != nil {
		t.Error(err)
	}
}

// A table whose counts or separators are wrong is damage.
func TestCheckOfTheTable(t *testing.T) {
	for what, damage := range map[string]func(s *sorted){
		"a record too many":    func(s *sorted) { s.n++ },
		"a node too few":       func(s *sorted) { s.froms = append(s.froms, "z") },
		"another first page":   func(s *sorted) { s.froms[0] = "a" },
		"a separator too many": func(s *sorted) { s.nodes[0].froms = append(s.nodes[0].froms, "z") },
		"no pages":             func(s *sorted) { s.nodes[0].pages, s.nodes[0].froms = nil, nil },
		"an early separator":   func(s *sorted) { s.nodes[0].froms[1] = "k000" },
		"a late separator":     func(s *sorted) { s.nodes[0].froms[1] += "x" },
		"an empty separator":   func(s *sorted) { s.nodes[0].froms[1] = "" },
		"a late revision":      func(s *sorted) { s.nodes[0].pages[0].base++ },
	} {
		w := newTwin(t)
		for i := range 3 * pageMax {
			w.commit(Op{Kind: Put, Key: fmt.Sprintf("k%03d", i)})
		}
		if err := w.m.Check(); err != nil || len(w.m.table.nodes[0].pages) < 2 {
			t.Fatal(err)
		}
		if damage(&w.m.table); w.m.Check() == nil {
			t.Error(what)
		}
	}
}

// check compares the store with the map: its invariants, every record by get, the whole list and some ranges.
func (w *twin) check(r *rand.Rand) {
	w.t.Helper()
	if err := w.m.Check(); err != nil {
		w.t.Fatal(err)
	}
	keys := slices.Sorted(maps.Keys(w.want))
	got, err := w.m.Get(context.Background(), nil, keys...)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, k := range keys {
		if got[i] != w.want[k] {
			w.t.Fatalf("Get(%q) = %q, want %q", k, got[i], w.want[k])
		}
	}
	ranges := []Range{{}, {Reverse: true}, {Limit: 3}, {Limit: 3, Reverse: true}}
	for range 4 {
		if len(keys) == 0 {
			break
		}
		a, b := keys[r.IntN(len(keys))], keys[r.IntN(len(keys))]
		ranges = append(ranges, Range{From: a, To: b}, Range{From: b + "\x00", Limit: 1 + r.IntN(300)}, Range{To: a, Limit: r.IntN(300), Reverse: true}, Range{From: min(a, b), To: max(a, b), Reverse: true})
	}
	for _, rg := range ranges {
		var sel []Record
		for _, k := range keys {
			if k >= rg.From && (rg.To == "" || k < rg.To) {
				sel = append(sel, w.want[k])
			}
		}
		if rg.Reverse {
			slices.Reverse(sel)
		}
		if rg.Limit > 0 && len(sel) > rg.Limit {
			sel = sel[:rg.Limit]
		}
		if got, _, err := w.m.List(context.Background(), rg); err != nil || !slices.Equal(got, sel) {
			w.t.Fatalf("List(%+v): %d records, want %d, %v", rg, len(got), len(sel), err)
		}
	}
}

// value returns a value of one of the kinds that a page stores each in its way.
func value(r *rand.Rand) string {
	like := []byte("\x01\x28\x1a\x80\x80\x80\x80\x80\x80\x04\x06node-7\x28k8s-pod-network.000000000000000000001234")
	switch r.IntN(12) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("x", 1+r.IntN(8))
	case 2: // around the largest that lies in a page
		return strings.Repeat("y", inlineMax-20+r.IntN(30))
	case 3:
		return strings.Repeat("z", r.IntN(70_000)*r.IntN(2))
	case 4:
		b := make([]byte, r.IntN(300))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return string(b)
	}
	for range r.IntN(8) {
		like[r.IntN(len(like))] = byte(r.IntN(256))
	}
	return string(like[:len(like)-r.IntN(4)])
}

// TestMemoryAgainstMap makes commits of random records, keys in several orders and of several forms, while the store grows,
// shrinks and grows again over many pages, and compares it with a map.
func TestMemoryAgainstMap(t *testing.T) {
	long := strings.Repeat("long", 62) // with what follows around the longest key of a page
	forms := map[string]func(*rand.Rand, int) string{
		"ascending":  func(r *rand.Rand, step int) string { return fmt.Sprintf("h%08d", step-r.IntN(40)*r.IntN(2)) },
		"descending": func(r *rand.Rand, step int) string { return fmt.Sprintf("h%08d", 1e7-step+r.IntN(40)*r.IntN(2)) },
		"random":     func(r *rand.Rand, _ int) string { return fmt.Sprintf("k%05d", r.IntN(3000)) },
		"few":        func(r *rand.Rand, _ int) string { return fmt.Sprintf("a%03d", r.IntN(150)) },
		"bytes": func(r *rand.Rand, _ int) string {
			b := []byte{"abh"[r.IntN(3)], byte(r.IntN(3)), byte(r.IntN(256)), byte(r.IntN(4))}
			return string(b[:1+r.IntN(4)])
		},
		"long": func(r *rand.Rand, _ int) string { return long[:240+r.IntN(9)] + fmt.Sprint(r.IntN(2000)) },
	}
	for name, key := range forms {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, uint64(len(name))))
			w := newTwin(t)
			for step := range 4000 {
				ops := map[string]Op{}
				growing := step/1000%2 == 0
				for range 1 + r.IntN(6)*r.IntN(2) {
					k := key(r, step)
					op := Op{Kind: Put, Key: k, Value: value(r), Expect: AnyRevision}
					if r.IntN(10) < 6 != growing {
						op = Op{Kind: Delete, Key: k, Expect: AnyRevision}
						if have := slices.Collect(maps.Keys(w.want)); len(have) > 0 && r.IntN(4) == 0 {
							op.Key = slices.Min(have)
						}
					}
					if _, twice := ops[op.Key]; !twice {
						ops[op.Key] = op
					}
				}
				w.commit(slices.SortedFunc(maps.Values(ops), func(a, b Op) int { return strings.Compare(a.Value+a.Key, b.Value+b.Key) })...)
				if step%307 == 0 {
					w.check(r)
				}
			}
			w.check(r)
			data, err := w.m.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if w.m, err = RestoreMemory(data); err != nil {
				t.Fatal(err)
			}
			w.check(r)
			for k := range maps.Clone(w.want) {
				w.commit(Op{Kind: Delete, Key: k, Expect: AnyRevision})
			}
			w.check(r)
			if w.m.table.n != 0 || len(w.m.table.nodes) != 0 {
				t.Errorf("an empty table of %d records in %d nodes", w.m.table.n, len(w.m.table.nodes))
			}
		})
	}
}

// The size of a number is what its code takes, which a record that is overwritten in place relies upon.
func TestSizeOf(t *testing.T) {
	for bits := range 64 {
		for _, v := range []uint64{1<<bits - 1, 1 << bits, 1<<bits + 1} {
			if got, want := sizeOf(v), len(binary.AppendUvarint(nil, v)); got != want {
				t.Errorf("%d takes %d bytes, want %d", v, got, want)
			}
		}
	}
}

// TestLargeRecords packs a page while a large record is being written.
func TestLargeRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := newTwin(t)
	for i := range 300 {
		k := fmt.Sprintf("k%03d", (i*37)%100)
		v := strings.Repeat("v", 60)
		if i%3 == 0 {
			v = strings.Repeat("w", inlineMax+i)
		}
		w.commit(Op{Kind: Put, Key: k, Value: v, Expect: AnyRevision})
		w.check(r)
	}
}

// TestRecordsAreSmall counts the bytes of records as an engine writes them: addresses with values of 61 bytes, and handle
// index records with keys of 48 bytes.
func TestRecordsAreSmall(t *testing.T) {
	const n = 20_000
	address := func(i int) Op {
		return Op{Kind: Put, Key: fmt.Sprintf("a4\x0a%c%c%c", i>>16, i>>8&255, i&255), Value: fmt.Sprintf("\x01\x28\x1a%c\x80\x80\x80\x80\x80\x04\x06node-%03d\x28k8s-pod-network.%024d", i&127, i/1000, i), Expect: AnyRevision}
	}
	handle := func(i int) Op {
		return Op{Kind: Put, Key: fmt.Sprintf("hk8s-pod-network.%024d\x004\x0a%c%c%c\x1a", i, i>>16, i>>8&255, i&255), Expect: AnyRevision}
	}
	plain := 0
	for i := range n {
		for _, op := range []Op{address(i), handle(i)} {
			plain += len(op.Key) + len(op.Value)
		}
	}
	size := func(m *Memory) (bytes int) {
		for _, nd := range m.table.nodes {
			for i, p := range nd.pages {
				bytes += int(unsafe.Sizeof(*p)) + cap(p.buf) + 8 + int(unsafe.Sizeof("")) + len(nd.froms[i])
			}
		}
		return bytes
	}
	load := func(order []int) *Memory {
		m := NewMemory()
		for _, i := range order {
			if _, err := m.Commit(context.Background(), []Op{address(i), handle(i)}); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	ascending, random := make([]int, n), rand.New(rand.NewPCG(1, 1)).Perm(n)
	for i := range ascending {
		ascending[i] = i
	}
	limit := func(what string, m *Memory, most int) {
		if got := size(m); got > most {
			t.Errorf("%s: %d bytes, %.1f a record, want at most %d", what, got, float64(got)/(2*n), most)
		}
	}
	m := load(ascending)
	limit("in order", m, plain*4/10)
	data, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := RestoreMemory(data)
	if err != nil {
		t.Fatal(err)
	}
	limit("loaded", loaded, plain*4/10)
	m = load(random)
	limit("at random", m, plain*6/10)
	for _, i := range random {
		if _, err := m.Commit(context.Background(), []Op{address(i)}); err != nil {
			t.Fatal(err)
		}
	}
	limit("written again", m, plain*7/10)
}
