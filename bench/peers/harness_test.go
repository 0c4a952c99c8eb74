package main

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// obeys checks the contract that makes the figures of a contestant comparable: a
// set hands out each child once, in the order of a cursor, and takes back.
func obeys[H any, S prefixSet[H]](t *testing.T, p prefixPeer[H, S]) {
	t.Run(p.name, func(t *testing.T) {
		pool := netip.MustParsePrefix("10.0.0.0/18")
		const children = 1 << 10
		s := must(p.make(pool, 28))
		next := func() netip.Prefix {
			t.Helper()
			return p.prefix(must(s.AllocateNext()))
		}
		child := func(i int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 4), byte(i << 4)}), 28)
		}
		expect := func(want netip.Prefix) {
			t.Helper()
			if got := next(); got != want {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
		for i := range children {
			expect(child(i))
		}
		if h, err := s.AllocateNext(); err == nil {
			t.Fatalf("a full set gives %v", p.prefix(h))
		}
		for _, i := range []int{700, 3} {
			must(s.Release(p.handle(child(i))))
		}
		expect(child(3)) // the cursor has wrapped
		must(s.Release(p.handle(child(3))))
		expect(child(700)) // and moved on
		expect(child(3))

		part := netip.MustParsePrefix("10.0.32.0/20") // children 512 to 767
		must(s.Release(p.handle(part)))
		must(s.Occupy(p.handle(child(513))))
		must(s.Occupy(p.handle(netip.MustParsePrefix("10.0.33.0/24")))) // 528 to 543
		got := []netip.Prefix{next(), next()}
		if want := []netip.Prefix{child(512), child(514)}; !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		left := 0
		for ; ; left++ {
			if _, err := s.AllocateNext(); err != nil {
				break
			}
		}
		if want := 256 - 1 - 16 - 2; left != want {
			t.Fatalf("%d children left, want %d", left, want)
		}
		must(s.Release(p.handle(pool)))
		must(s.Occupy(p.handle(pool)))
		if _, err := s.AllocateNext(); err == nil {
			t.Fatal("the pool is occupied and hands out a child")
		}
		if _, err := s.Occupy(p.handle(netip.MustParsePrefix("10.1.0.0/28"))); err == nil {
			t.Fatal("occupies what is not in the pool")
		}
		if _, err := s.Release(p.handle(netip.MustParsePrefix("10.1.0.0/28"))); err == nil {
			t.Fatal("releases what is not in the pool")
		}
	})
}

func TestPeersObeyTheContract(t *testing.T) {
	obeys(t, oursPeer)
	obeys(t, bitsetPeer)
	obeys(t, roaringPeer)
	obeys(t, ciliumPeer)
	obeys(t, kubernetesPeer)
}

// fillsAsAsked checks the state that churn begins with.
func fillsAsAsked[H any, S prefixSet[H]](t *testing.T, p prefixPeer[H, S]) {
	t.Run(p.name, func(t *testing.T) {
		const order = 12
		for _, free := range []uint64{1, 2, 3, 100, 1 << order} {
			s, taken := filled(p, order, free, min(5, 1<<order-1<<order/int(free)))
			for _, h := range taken { // they are, so that this changes nothing
				must(s.Occupy(h))
			}
			seen := map[netip.Prefix]bool{}
			for {
				h, err := s.AllocateNext()
				if err != nil {
					break
				}
				seen[p.prefix(h)] = true
			}
			for _, h := range taken {
				if seen[p.prefix(h)] {
					t.Fatalf("1/%d free: %v was to be taken and was free", free, p.prefix(h))
				}
			}
			if want := 1 << order / int(free); len(seen) != want {
				t.Fatalf("1/%d free: %d children were free, want %d", free, len(seen), want)
			}
		}
	})
}

func TestFilled(t *testing.T) {
	fillsAsAsked(t, oursPeer)
	fillsAsAsked(t, bitsetPeer)
	fillsAsAsked(t, roaringPeer)
	fillsAsAsked(t, ciliumPeer)
	fillsAsAsked(t, kubernetesPeer)
}

func TestScatterIsAPermutation(t *testing.T) {
	for _, order := range []int{1, 2, 12, 16, 20} {
		seen := make([]bool, 1<<order)
		for i := range uint64(1) << order {
			x := scatter(i, order)
			if x >= 1<<order || seen[x] {
				t.Fatalf("order %d: element %d is %d, out of range or twice", order, i, x)
			}
			seen[x] = true
		}
	}
}

// Every work of up to 2^16 children runs for every contestant that it lists, does
// what it is told more than once, and leaves a state that it can begin with.
func TestWorksRun(t *testing.T) {
	for _, w := range cidrsetWorks(options{}).works {
		if strings.Contains(w.id, "2^2") || strings.Contains(w.id, "batch/") {
			continue // the sets are large
		}
		for _, c := range w.cells {
			j := c.open()
			n := j.n
			if n == 0 {
				n = 3 * max(1, j.grain)
			}
			for range 2 {
				if j.reset != nil {
					j.reset()
				}
				j.run(n)
			}
		}
	}
}

// allWorks returns the works of all systems.
func allWorks() (list []*work) {
	for _, sys := range systems {
		list = append(list, sys.works(options{}).works...)
	}
	return list
}

// A work is found by its id, whatever system it belongs to.
func TestIDsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range allWorks() {
		if seen[w.id] {
			t.Errorf("two works have the id %q", w.id)
		}
		seen[w.id] = true
	}
}

func TestColumnsAreContestants(t *testing.T) {
	var want []string
	for _, c := range columns {
		want = append(want, c.name)
	}
	for _, w := range allWorks() {
		for _, c := range w.cells {
			if !slices.Contains(want, c.contestant) {
				t.Errorf("%s has a contestant %q without a column", w.id, c.contestant)
			}
		}
	}
}

// Every target names works and contestants that exist.
func TestTargetsAreMeasured(t *testing.T) {
	works := allWorks()
	for _, w := range works {
		for _, c := range w.cells {
			c.samples = []sample{{ns: 1}}
		}
	}
	for _, sys := range systems {
		for _, g := range sys.targets {
			if _, ok := g.got(&table{works: works}); !ok {
				t.Errorf("%s: not measured by a whole run", g.text)
			}
		}
	}
}

// A batch of single calls is what AllocateN and ReleaseN stand for.
func TestLoopedBatches(t *testing.T) {
	s := must(bitsetPeer.make(netip.MustParsePrefix("10.0.0.0/26"), 28))
	b := batchesOf[netip.Prefix](s)
	dst := make([]netip.Prefix, 3)
	if err := b.AllocateN(dst); err != nil || dst[2] != netip.MustParsePrefix("10.0.0.32/28") {
		t.Fatal(dst, err)
	}
	if _, err := b.ReleaseN(dst[:2]); err != nil {
		t.Fatal(err)
	}
	if err := b.AllocateN(dst); err != nil {
		t.Fatal(err)
	}
	if err := b.AllocateN(dst); err == nil {
		t.Fatal("a full set gives three children")
	}
	if _, err := b.ReleaseN([]netip.Prefix{netip.MustParsePrefix("10.9.0.0/28")}); err == nil {
		t.Fatal("released what is not in the pool")
	}
	if _, ok := batchesOf[netip.Prefix](must(oursPeer.make(benchPool, 24))).(*looped[netip.Prefix, *nullSet]); ok {
		t.Fatal("ours has batches and is looped over")
	}
}

// counting returns a job that notes what is asked of it and takes d for each
// operation of a clock that is real.
func counting(ops, resets *atomic.Int64, d time.Duration) *job {
	return &job{
		parallel: true, // the wall clock
		reset:    func() { resets.Add(1) },
		run: func(n int) {
			ops.Add(int64(n))
			time.Sleep(time.Duration(n) * d)
		},
	}
}

func TestRunnerMeasuresEachPass(t *testing.T) {
	var ops, resets atomic.Int64
	j := counting(&ops, &resets, 100*time.Microsecond)
	j.grain = 4
	c := &cell{contestant: ours, open: func() *job { return j }}
	r := &runner{options: options{passes: 5, window: time.Millisecond, procs: 2, slow: 30 * time.Millisecond}, log: io.Discard}
	r.measure([]*work{{id: "x", cells: []*cell{c}}})
	if len(c.samples) != 5 || c.few {
		t.Fatalf("%d samples of 5 passes, few %v", len(c.samples), c.few)
	}
	if j.n < 4 || j.n%4 != 0 {
		t.Errorf("%d operations in a window, want a multiple of 4", j.n)
	}
	for _, s := range c.samples {
		if s.ns < 100e3 { // a sleep is never shorter than asked for
			t.Errorf("%v ns for an operation that takes 100 us at least", s.ns)
		}
	}
	if resets.Load() < 6 {
		t.Errorf("%d resets before 6 rounds at least", resets.Load())
	}
}

func TestRunnerKeepsTheSizeOfARound(t *testing.T) {
	var ops, resets atomic.Int64
	j := counting(&ops, &resets, 10*time.Microsecond)
	j.n = 7
	c := &cell{contestant: ours, open: func() *job { return j }}
	r := &runner{options: options{passes: 2, window: time.Millisecond, procs: 2, slow: 30 * time.Millisecond}, log: io.Discard}
	r.measure([]*work{{id: "x", cells: []*cell{c}}})
	if j.n != 7 || ops.Load() != 7*resets.Load() {
		t.Errorf("rounds of %d operations, %d in %d rounds, want 7 each", j.n, ops.Load(), resets.Load())
	}
}

func TestSlowCellsTakePartInFewPasses(t *testing.T) {
	var ops, resets atomic.Int64
	slow := &cell{contestant: kubernetes, open: func() *job { return counting(&ops, &resets, 40*time.Millisecond) }}
	fast := &cell{contestant: ours, open: func() *job { return counting(&ops, &resets, 10*time.Microsecond) }}
	r := &runner{options: options{passes: fewPasses + 1, window: time.Millisecond, procs: 2, slow: 30 * time.Millisecond}, log: io.Discard}
	r.measure([]*work{{id: "x", cells: []*cell{slow, fast}}})
	if len(slow.samples) != fewPasses || len(fast.samples) != fewPasses+1 {
		t.Errorf("%d and %d samples, want %d and %d", len(slow.samples), len(fast.samples), fewPasses, fewPasses+1)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 100, 2}, 3}} {
		if got := medianOf(c.v); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.v, got, c.want)
		}
	}
	if _, ok := (*cell)(nil).ns(); ok {
		t.Error("a cell that is not there was measured")
	}
}

// measured returns a table in which the contestants need the given times.
func measured(ns map[string]float64) *table {
	w := &work{system: systemCidrset, id: "w", title: "some work"}
	for _, c := range columns {
		if v, ok := ns[c.name]; ok {
			w.cells = append(w.cells, &cell{contestant: c.name, samples: []sample{{ns: v, bytes: 0.001, allocs: 2}}})
		}
	}
	return &table{works: []*work{w}}
}

func TestTable(t *testing.T) {
	tab := measured(map[string]float64{ours: 20, kubernetes: 1.5e6, flat: 25})
	tab.memory = []footprint{{systemCidrset, "memory", map[string]float64{ours: 0.125}}, {"another", "memory", nil}}
	if lines := tab.lines("another"); lines != nil {
		t.Errorf("a system that was not measured has %q", lines)
	}
	got := tab.lines(systemCidrset)
	want := []string{
		"| time of   |     ours |  bitset | Kubernetes | ours: B, allocs | Kubernetes / ours | ours / bitset |",
		"|-----------|---------:|--------:|-----------:|----------------:|------------------:|--------------:|",
		"| some work |  20.0 ns | 25.0 ns |    1.50 ms |         0, 2.00 |           75,000x |        0.800x |",
		"| memory    | 0.1250 B |       - |          - |                 |                   |               |",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestVerdicts(t *testing.T) {
	tab := measured(map[string]float64{ours: 20, flat: 25})
	lines, missed := verdicts(tab, []target{
		{text: "a", got: ratioOf("w", ours, flat), limit: 0.8},
		{text: "b", got: ratioOf("w", ours, flat), limit: 0.79},
		{text: "c", got: ratioOf("w", ours, flat), limit: 0.8, least: true},
		{text: "d", got: ratioOf("w", ours, flat), limit: 0.81, least: true},
		{text: "e", got: ratioOf("w", kubernetes, ours), limit: 1},
		{text: "f", got: nsOf("w", ours), limit: 19, unit: " ns"},
	})
	var words []string
	for _, l := range lines {
		words = append(words, l[:4])
	}
	if want := []string{"pass", "MISS", "pass", "MISS", "----", "MISS"}; !slices.Equal(words, want) || missed != 3 {
		t.Errorf("%d missed:\n%s", missed, strings.Join(lines, "\n"))
	}
	if want := "MISS  f: 20.0 ns (<= 19.0 ns)"; lines[5] != want {
		t.Errorf("got %q, want %q", lines[5], want)
	}
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, []byte("no markers"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-passes", "0"}, {"-window", "0s"}, {"-procs", "0"}, {"more"}, {"-only", "("},
		{"-readme", readme}, {"-readme", filepath.Join(t.TempDir(), "none")}, {"-readme", readme, "-only", "x"},
	} {
		var out bytes.Buffer
		if err := run(args, &out, io.Discard); err == nil || out.Len() > 0 {
			t.Errorf("%q: error %v, output %q", args, err, out.String())
		}
	}
}

// A run of one small work, from the flags to the report.
func TestRun(t *testing.T) {
	var out, log bytes.Buffer
	err := run([]string{"-passes", "2", "-window", "100us", "-only", `^(pair/2\^16/50|floor/pair)@(null|ours)$`}, &out, &log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| Release + AllocateNext, 2^16 children, 50 % taken", "floor of a pair", "k8s.io/kubernetes v", "---- "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "99 % taken,") || !strings.Contains(log.String(), "pass 2 of 2") {
		t.Errorf("report:\n%s\nprogress:\n%s", out.String(), log.String())
	}
}

// liveHeap sees what a contestant keeps and forgets what it dropped.
func TestLiveHeap(t *testing.T) {
	before := liveHeap()
	kept := make([]byte, 8<<20)
	for i := range kept {
		kept[i] = 1
	}
	if got := int64(liveHeap()) - int64(before); got < 8<<20 || got > 9<<20 {
		t.Errorf("8 MiB that are kept show as %d bytes", got)
	}
	runtime.KeepAlive(kept)
	if got := int64(liveHeap()) - int64(before); got > 1<<20 {
		t.Errorf("8 MiB that were dropped show as %d bytes", got)
	}
}

func TestStates(t *testing.T) {
	for state, want := range map[string]uint64{"empty": 0, "sparse": 1 << 8, "half": 1 << 19, "full": 1 << 20} {
		s := inState(oursPeer, state)
		if got := s.Stats().Used; got != want {
			t.Errorf("%s: %d children taken, want %d", state, got, want)
		}
	}
	if len(states) != 4 {
		t.Errorf("%d states", len(states))
	}
}

var errAny = errors.New("any")

func TestMustPanics(t *testing.T) {
	defer func() {
		if recover() != errAny {
			t.Error("an error of a contestant went unnoticed")
		}
	}()
	must(0, errAny)
}
