package fuzz

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// serviceWorlds are the ranges that a trace may begin with.
var serviceWorlds = []struct {
	prefix   string
	opts     model.ServiceOptions
	portRoom uint16
}{
	{"10.96.0.0/28", model.ServiceOptions{StaticSize: -1}, 15},
	{"10.96.0.0/27", model.ServiceOptions{StaticSize: -1}, 16},
	{"10.96.0.0/27", model.ServiceOptions{StaticSize: -1, Lowest: true}, 31},
	{"10.96.0.0/24", model.ServiceOptions{StaticSize: -1, NeverSpill: true}, 63},
	{"fd00::/122", model.ServiceOptions{StaticSize: 5}, 64},
	{"fd00::/120", model.ServiceOptions{StaticSize: -1,
		Static: []netip.Prefix{netip.MustParsePrefix("fd00::80/124"), netip.MustParsePrefix("fd00::14/126")}}, 100},
	{"10.96.0.0/31", model.ServiceOptions{StaticSize: -1, PointToPoint: true}, 1},
	{"10.96.0.0/31", model.ServiceOptions{StaticSize: -1}, 0},
}

// serviceOptions are the options of servicealloc that stand for o.
func serviceOptions(o model.ServiceOptions) []servicealloc.Option {
	opts := []servicealloc.Option{servicealloc.StaticBand(o.StaticSize, o.Static...)}
	if o.Lowest {
		opts = append(opts, servicealloc.LowestFirst())
	} else {
		opts = append(opts, servicealloc.Random(rand.NewPCG(7, 7)))
	}
	if o.NeverSpill {
		opts = append(opts, servicealloc.NeverSpill())
	}
	if o.PointToPoint {
		opts = append(opts, servicealloc.PointToPoint())
	}
	return opts
}

// sentinel returns the text of the sentinel in err, "" for nil.
func sentinel(err error) (text string) {
	for ; err != nil; err = errors.Unwrap(err) {
		text = err.Error()
	}
	return text
}

// FuzzServiceRange drives a range and its twin with one trace: picks, names, batches,
// dry runs and restarts have equal answers, and every state passes Check.
func FuzzServiceRange(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for world := range serviceWorlds {
		f.Add(serviceSeed(rng, byte(world), 9, 200))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		trace := model.NewTrace(data)
		world := serviceWorlds[trace.Op(len(serviceWorlds))]
		p := netip.MustParsePrefix(world.prefix)
		d := &rangeDriver{t: t, p: p, opts: world.opts, twin: model.NewServiceRange(p, world.opts), draws: draws(world.opts)}
		r, err := servicealloc.NewRange(p, serviceOptions(world.opts)...)
		if err != nil {
			t.Fatal(err)
		}
		d.r, d.u = r, d.draws()
		for ops := 0; trace.More() && ops < 400; ops++ {
			d.step(trace)
			d.compare()
		}
	})
}

// draws returns the twin's side of the source: a generator seeded as the engine seeds
// its own, 0 for lowest first.
func draws(o model.ServiceOptions) func() uint64 {
	if o.Lowest {
		return func() uint64 { return 0 }
	}
	src := rand.NewPCG(7, 7)
	return rand.NewPCG(src.Uint64(), src.Uint64()).Uint64
}

// serviceSeed makes a trace of n operations below ops.
func serviceSeed(rng *rand.Rand, world byte, ops, n int) []byte {
	data := []byte{world}
	for range n {
		data = model.AppendOp(data, byte(rng.IntN(ops)), rng.Uint64N(300), rng.Uint64N(300))
	}
	return data
}

type rangeDriver struct {
	t     *testing.T
	p     netip.Prefix
	opts  model.ServiceOptions
	r     *servicealloc.Range
	twin  *model.ServiceSet[netip.Addr]
	draws func() uint64
	u     uint64 // drawn ahead
}

// step performs one operation on both and compares the answers.
func (d *rangeDriver) step(trace *model.Trace) {
	t := d.t
	op, k := trace.Op(9), int(trace.Below(300))
	ip := d.p.Addr()
	for range k {
		ip = ip.Next()
	}
	switch op {
	case 0, 1, 2:
		d.next()
	case 3, 4:
		want := d.take(ip)
		if will, _, err := d.r.DryRun(ip); sentinel(err) != want || err == nil && will != ip {
			t.Fatalf("DryRun(%v) = %v, %v, want %q", ip, will, err, want)
		}
		if want == "" {
			d.twin.Held[ip] = true
		}
		if got := sentinel(d.r.Allocate(ip)); got != want {
			t.Fatalf("Allocate(%v) = %q, want %q", ip, got, want)
		}
	case 5, 6:
		want := d.twin.Held[ip]
		delete(d.twin.Held, ip)
		if got := d.r.Release(ip); got != want {
			t.Fatalf("Release(%v) = %v, want %v", ip, got, want)
		}
	case 7:
		d.batch(k % 80)
	case 8:
		d.restart()
	}
}

func (d *rangeDriver) next() {
	t := d.t
	var want netip.Addr
	wantErr, band := model.ServiceFull, d.twin.Choose()
	if band != model.ServiceClosed {
		want, wantErr = d.twin.Take(band, d.u), ""
		d.u = d.draws()
	}
	dry, drySpilled, dryErr := d.r.DryRun(netip.Addr{})
	got, spilled, err := d.r.AllocateNext()
	if got != want || sentinel(err) != wantErr || spilled != (band == model.ServiceStatic) {
		t.Fatalf("AllocateNext = %v, %v, %v; want %v, band %d, %q", got, spilled, err, want, band, wantErr)
	}
	if dry != got || drySpilled != spilled || dryErr != err {
		t.Fatalf("DryRun said %v, %v, %v; AllocateNext %v, %v, %v", dry, drySpilled, dryErr, got, spilled, err)
	}
}

// take says what naming ip answers.
func (d *rangeDriver) take(ip netip.Addr) string {
	band, ok := d.twin.BandOf(ip)
	switch {
	case !ok:
		return model.ServiceOutOfRange
	case band == model.ServiceClosed:
		return model.ServiceOutOfRange
	case d.twin.Held[ip]:
		return model.ServiceOccupied
	}
	return ""
}

func (d *rangeDriver) batch(n int) {
	t := d.t
	dst := make([]netip.Addr, n)
	want, wantSpilled, ok := d.twin.Run(n, d.u)
	if ok && n > 0 {
		d.u = d.draws()
	}
	spilled, err := d.r.AllocateN(dst)
	if ok != (err == nil) || err != nil && !errors.Is(err, ipalloc.ErrFull) {
		t.Fatalf("AllocateN(%d): %v, want success %v", n, err, ok)
	}
	if ok && (!slices.Equal(dst, want) || spilled != wantSpilled) {
		t.Fatalf("AllocateN(%d) = %v, spilled %d; want %v, %d", n, dst, spilled, want, wantSpilled)
	}
}

// restart goes on with a range restored from a snapshot, which has the state of the
// random generator.
func (d *rangeDriver) restart() {
	t := d.t
	data, err := d.r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if d.r, err = servicealloc.NewRange(d.p, append(serviceOptions(d.opts), servicealloc.Restore(data))...); err != nil {
		t.Fatal(err)
	}
	again, err := d.r.MarshalBinary()
	if err != nil || !bytes.Equal(again, data) {
		t.Fatalf("a snapshot of the restored range differs (%v)", err)
	}
}

// compare compares the states.
func (d *rangeDriver) compare() {
	t := d.t
	if err := d.r.Check(); err != nil {
		t.Fatal(err)
	}
	var held []netip.Addr
	for _, ip := range d.twin.Members {
		if d.twin.Held[ip] {
			held = append(held, ip)
		}
		if _, taken := d.r.Lookup(ip); taken != d.twin.Held[ip] {
			t.Fatalf("Lookup(%v): taken is %v", ip, taken)
		}
	}
	if got := slices.Collect(d.r.All()); !slices.Equal(got, held) {
		t.Fatalf("All = %v, want %v", got, held)
	}
	s := d.r.Stats()
	if free := d.r.Free(); free != s.Static.Free+s.Dynamic.Free {
		t.Fatalf("Free = %d, %+v", free, s)
	}
	for band, got := range map[int]servicealloc.BandStats{model.ServiceStatic: s.Static, model.ServiceDynamic: s.Dynamic} {
		size, used := d.twin.Count(band)
		if want := (servicealloc.BandStats{Capacity: uint64(size), Used: uint64(used), Free: uint64(size - used)}); got != want {
			t.Fatalf("band %d: %+v, want %+v", band, got, want)
		}
	}
}
