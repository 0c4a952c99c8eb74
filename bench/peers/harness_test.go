package main

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
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
	for _, w := range cidrsetWorks().List {
		if strings.Contains(w.ID, "2^2") || strings.Contains(w.ID, "batch/") {
			continue // the sets are large
		}
		for _, c := range w.Cells {
			j := c.Open()
			n := j.N
			if n == 0 {
				n = 3 * max(1, j.Grain)
			}
			for range 2 {
				if j.Reset != nil {
					j.Reset()
				}
				j.Run(n)
			}
		}
	}
}

// Every work has an id and columns of its own, and every target is measured.
func TestProgram(t *testing.T) {
	if err := program.Check(); err != nil {
		t.Error(err)
	}
}

// A run of one small work, from the flags to the report.
func TestRun(t *testing.T) {
	var out, log bytes.Buffer
	err := run([]string{"-passes", "2", "-window", "100us", "-only", `^(pair|far)/2\^16(/50)?@(null|ours)$`}, &out, &log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| Release + AllocateNext, 2^16 children, 50 % taken", "k8s.io/kubernetes v", "---- "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "99 % taken,") || !strings.Contains(log.String(), "pass 2 of 2") {
		t.Errorf("report:\n%s\nprogress:\n%s", out.String(), log.String())
	}
}
