package servicealloc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/model"
)

// The node ports 30000-30128: dynamic ones first, then the static band by name, then
// whatever is free. SA5
func TestPortsContract(t *testing.T) {
	p := newPortsT(t, 30000, 30128)
	for i := range 129 - 16 {
		if n, spilled, err := p.AllocateNext(TCP); err != nil || spilled || n < 30016 {
			t.Fatal(i, n, spilled, err)
		}
	}
	for n := uint16(30016); n <= 30128; n++ {
		if !p.Has(Port{TCP, n}) || p.Has(Port{UDP, n}) {
			t.Fatal(n)
		}
	}
	if s := p.Stats(TCP); s.Static.Free != 16 || s.Dynamic.Free != 0 {
		t.Fatal(s)
	}
	for n := uint16(30000); n < 30016; n++ {
		wantErr(t, p.Allocate(Port{TCP, n}), nil)
	}
	if _, _, err := p.AllocateNext(TCP); err != ErrFull {
		t.Fatal(err)
	}
	if !p.Release(Port{TCP, 30053}) || p.Release(Port{TCP, 30053}) {
		t.Fatal("release")
	}
	if n, spilled, err := p.AllocateNext(TCP); n != 30053 || spilled || err != nil {
		t.Fatal(n, spilled, err)
	}
	if s := p.Stats(UDP); s.Static.Used+s.Dynamic.Used != 0 {
		t.Fatal("UDP has its own")
	}
	check(t, p)
}

// Named ports, dry and real. SA3, SA5
func TestPortsByName(t *testing.T) {
	p := newPortsT(t, 10000, 10200)
	for _, n := range []uint16{10000, 10010, 10020} {
		wantErr(t, p.Allocate(Port{UDP, n}), nil)
	}
	before := snapshotOf(t, p)
	for n, want := range map[uint16]error{10000: ErrOccupied, 10030: nil, 10040: nil, 9999: ErrOutOfRange, 10201: ErrOutOfRange, 0: ErrOutOfRange, 65535: ErrOutOfRange} {
		wantErr(t, p.DryRun(Port{UDP, n}), want)
	}
	n, _, err := p.DryRunNext(UDP)
	if err != nil || n < 10016 || snapshotOf(t, p) != before {
		t.Fatal(n, err)
	}
	if m, _, _ := p.AllocateNext(UDP); m != n {
		t.Fatalf("dry run %d, call %d", n, m)
	}
	for _, bad := range []Port{{UDP, 9999}, {UDP, 10201}, {UDP, 0}, {TCP, 65535}} {
		wantErr(t, p.Allocate(bad), ErrOutOfRange)
		if p.Has(bad) || p.Release(bad) || p.Band(bad) != Closed {
			t.Error(bad)
		}
	}
	for _, proto := range []Protocol{0, 4, 255} {
		wantErr(t, p.Allocate(Port{proto, 10000}), ErrBadPort)
		_, _, err := p.AllocateNext(proto)
		wantErr(t, err, ErrBadPort)
		_, _, err = p.DryRunNext(proto)
		wantErr(t, err, ErrBadPort)
		_, err = p.AllocateN(proto, make([]uint16, 1))
		wantErr(t, err, ErrBadPort)
		if p.Has(Port{proto, 10000}) || p.Release(Port{proto, 10000}) || p.Stats(proto) != (Stats{}) {
			t.Error(proto)
		}
		for range p.All(proto) {
			t.Error(proto)
		}
	}
	if got := slices.Collect(p.All(UDP)); !slices.Contains(got, n) || len(got) != 4 || !slices.IsSorted(got) {
		t.Error(got)
	}
	check(t, p)
}

// Random operations against the twin, over ranges on either side of a word. SA5
func TestPortsModel(t *testing.T) {
	for _, last := range []uint16{100, 116, 162, 163, 164, 700} {
		for _, o := range []model.ServiceOptions{{StaticSize: -1}, {StaticSize: 0}, {StaticSize: 1, NeverSpill: true}} {
			mine := rand.NewPCG(8, 9)
			opts := []Option{Random(rand.NewPCG(8, 9))}
			if o.StaticSize >= 0 {
				opts = append(opts, StaticSize(uint64(o.StaticSize)))
			}
			if o.NeverSpill {
				opts = append(opts, NeverSpill())
			}
			p := newPortsT(t, 100, last, opts...)
			u := [4]uint64{0, mine.Uint64(), mine.Uint64(), mine.Uint64()}
			var twins [4]*model.ServiceSet[uint16]
			for i := range twins {
				twins[i] = model.NewServicePorts(100, last, o)
			}
			rng := rand.New(rand.NewPCG(1, uint64(last)))
			for range 1500 {
				proto := TCP + Protocol(rng.IntN(3))
				twin := twins[proto]
				switch n := uint16(100 + rng.IntN(int(last)-99)); rng.IntN(4) {
				case 0, 1:
					want, spill, ok := twin.Run(1, u[proto])
					got, spilled, err := p.AllocateNext(proto)
					if ok != (err == nil) || ok && (got != want[0] || spilled != (spill == 1)) {
						t.Fatal(got, spilled, err, want, ok)
					}
					if ok {
						u[proto] = mine.Uint64()
					}
				case 2:
					if p.Release(Port{proto, n}) != twin.Held[n] {
						t.Fatal(n)
					}
					delete(twin.Held, n)
				case 3:
					k := rng.IntN(20)
					dst := make([]uint16, k)
					want, spill, ok := twin.Run(k, u[proto])
					spilled, err := p.AllocateN(proto, dst)
					if ok != (err == nil) || ok && (!slices.Equal(dst, want) || spilled != spill) {
						t.Fatal(dst, spilled, err, want, ok)
					}
					if ok && k > 0 {
						u[proto] = mine.Uint64()
					}
				}
			}
			check(t, p)
			for proto := TCP; proto <= SCTP; proto++ {
				want := slices.DeleteFunc(slices.Clone(twins[proto].Members), func(n uint16) bool { return !twins[proto].Held[n] })
				if got := slices.Collect(p.All(proto)); !slices.Equal(got, want) {
					t.Fatal(proto, got, want)
				}
			}
		}
	}
}
