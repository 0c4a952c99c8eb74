package servicealloc

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/model"
)

// newWide returns a range with windows of 64 addresses, so that several fill up, and its
// twin.
func newWide(t *testing.T, p string, o model.ServiceOptions, opts ...Option) (*Range, *model.ServiceSet[netip.Addr]) {
	t.Helper()
	c, err := collect("new", append(opts, Reserve(o.Reserved...), StaticPrefixes(o.Static...)))
	if err != nil {
		t.Fatal(err)
	}
	if o.StaticSize >= 0 {
		c.sized, c.staticSize = true, uint64(o.StaticSize)
	}
	r, err := newRange(pfx(p), 6, c)
	if err != nil {
		t.Fatal(err)
	}
	twin := model.NewServiceRange(pfx(p), o)
	twin.Window, twin.Lowest = 64, o.Lowest
	return r, twin
}

// Windows that fill, move on, come round, and shrink again, against the twin. X8
func TestWindows(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		o      model.ServiceOptions
	}{
		{"fd00::/120", model.ServiceOptions{StaticSize: -1}},
		{"10.0.0.0/23", model.ServiceOptions{StaticSize: 100}},
		{"fd00::/120", model.ServiceOptions{StaticSize: 70, Lowest: true}},
		{"fd00::/119", model.ServiceOptions{StaticSize: -1, Reserved: []netip.Prefix{pfx("fd00::40/122"), pfx("fd00::100/121")}, Static: []netip.Prefix{pfx("fd00::1c0/122")}}},
	} {
		src, mine := rand.NewPCG(1, 2), rand.NewPCG(1, 2)
		opts, draw := []Option{Random(src)}, mine.Uint64
		if tt.o.Lowest {
			opts, draw = []Option{LowestFirst()}, func() uint64 { return 0 }
		}
		r, twin := newWide(t, tt.prefix, tt.o, opts...)
		if r.area.wide == nil {
			t.Fatal("not wide")
		}
		d := &wideDriver{t, r, twin, draw, draw(), rand.New(rand.NewPCG(3, 4))}
		for i := range 6000 {
			d.step(i/1500%2 == 0) // drift between nearly full and nearly empty
			if i%16 == 0 {
				compareHeld(t, r, twin)
			}
		}
		compareHeld(t, r, twin)
	}
}

type wideDriver struct {
	t    *testing.T
	r    *Range
	twin *model.ServiceSet[netip.Addr]
	draw func() uint64
	u    uint64 // drawn ahead
	rng  *rand.Rand
}

// step performs one operation on both and compares the answers.
func (d *wideDriver) step(grow bool) {
	t, r, twin, rng := d.t, d.r, d.twin, d.rng
	switch k := rng.IntN(10); {
	case k == 0:
		d.batch(rng.IntN(100))
	case k < 6 == grow:
		d.next()
	case k == 9:
		a := twin.Members[rng.IntN(len(twin.Members))]
		b, _ := twin.BandOf(a)
		if ok := r.Allocate(a) == nil; ok != (!twin.Held[a] && b != model.ServiceClosed) {
			t.Fatalf("%v: Allocate(%v) = %v", r.p, a, ok)
		} else if ok {
			twin.Held[a] = true
		}
	default:
		a := twin.Members[rng.IntN(len(twin.Members))]
		if r.Release(a) != twin.Held[a] {
			t.Fatalf("%v: Release(%v)", r.p, a)
		}
		delete(twin.Held, a)
	}
}

func (d *wideDriver) batch(n int) {
	dst := make([]netip.Addr, n)
	want, spill, ok := d.twin.Run(n, d.u)
	got, err := d.r.AllocateN(dst)
	if ok != (err == nil) || ok && (got != spill || !slices.Equal(dst, want)) {
		d.t.Fatalf("%v: AllocateN(%d) = %v, %d, %v; want %v, %d", d.r.p, n, dst, got, err, want, spill)
	}
	if ok && n > 0 {
		d.u = d.draw()
	}
}

func (d *wideDriver) next() {
	t, band := d.t, d.twin.Choose()
	dry, _, dryErr := d.r.DryRunNext()
	a, spilled, err := d.r.AllocateNext()
	if a != dry || err != dryErr {
		t.Fatalf("%v: dry run %v, call %v", d.r.p, dry, a)
	}
	if band == model.ServiceClosed {
		wantErr(t, err, ErrFull)
		return
	}
	if want := d.twin.Take(band, d.u); err != nil || a != want || spilled != (band == model.ServiceStatic) {
		t.Fatalf("%v: %v, %v, %v; want %v of band %d", d.r.p, a, spilled, err, want, band)
	}
	d.u = d.draw()
}

func compareHeld(t *testing.T, r *Range, twin *model.ServiceSet[netip.Addr]) {
	t.Helper()
	check(t, r)
	var want []netip.Addr
	for _, a := range twin.Members {
		if twin.Held[a] {
			want = append(want, a)
		}
	}
	if got := slices.Collect(r.All()); !slices.Equal(got, want) {
		t.Fatalf("All = %v, want %v", got, want)
	}
	s := r.Stats()
	for band, got := range map[int]BandStats{model.ServiceStatic: s.Static, model.ServiceDynamic: s.Dynamic} {
		if size, used := twin.Count(band); got != (BandStats{uint64(size), uint64(used), uint64(size - used)}) {
			t.Fatalf("band %d: %+v, want %d of %d", band, got, used, size)
		}
	}
}

// An IPv6 /48 and all of IPv6: picks come from the first /64, any address may be named,
// and the far ones cost little. X8
func TestBeyond64Bits(t *testing.T) {
	for _, p := range []string{"fd00::/48", "fd00::/63", "::/0"} {
		r := newRangeT(t, p)
		base := pfx(p).Addr()
		near, _ := base.Prefix(64)
		for range 1000 {
			if a, _, err := r.AllocateNext(); err != nil || !near.Contains(a) && a != near.Addr().Prev() {
				t.Fatal(p, a, err)
			}
		}
		far := []netip.Addr{base.Next()}
		_, top := ends(pfx(p))
		far = append(far, top.Addr6(), top.Addr6().Prev())
		for _, a := range far {
			wantErr(t, r.Allocate(a), nil)
			wantErr(t, r.Allocate(a), ErrOccupied)
		}
		wantErr(t, r.Allocate(base), ErrOutOfRange)
		check(t, r)
		got := slices.Collect(r.All())
		if len(got) != 1003 || got[1002] != top.Addr6() || !slices.IsSortedFunc(got, netip.Addr.Compare) {
			t.Fatal(p, len(got), got[1002])
		}
		again, err := Restore([]byte(snapshotOf(t, r)))
		if err != nil || !slices.Equal(slices.Collect(again.All()), got) {
			t.Fatal(p, err)
		}
		check(t, again)
		for _, a := range got {
			if !r.Release(a) {
				t.Fatal(p, a)
			}
		}
		check(t, r)
		if r.area.wide != nil && len(r.area.rows) > 1 {
			t.Errorf("%s: %d windows for nothing", p, len(r.area.rows))
		}
	}
}

// A reservation that takes whole windows, and a static one far up. X8, SA4
func TestReservedWindows(t *testing.T) {
	r := newRangeT(t, "fd00::/32", Reserve(pfx("fd00::/33")), StaticPrefixes(pfx("fd00:0:ffff::/48")))
	check(t, r)
	a, spilled, err := r.AllocateNext()
	if err != nil || spilled || !pfx("fd00:0:8000::/64").Contains(a) {
		t.Fatal(a, spilled, err)
	}
	wantErr(t, r.Allocate(ip("fd00::1")), ErrReserved)
	if r.Band(ip("fd00:0:ffff::1")) != Static || r.Band(ip("fd00:0:fffe::1")) != Dynamic {
		t.Error("bands")
	}
	check(t, r)
}
