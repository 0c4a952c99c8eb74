package fuzz

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/model"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// servicePrefixes are what a trace may add: they nest, repeat and touch.
var servicePrefixes = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/27"), netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("10.0.0.32/27"),
	netip.MustParsePrefix("10.0.0.16/28"), netip.MustParsePrefix("10.0.1.0/29"), netip.MustParsePrefix("10.0.0.0/25"),
	netip.MustParsePrefix("fd00::/123"), netip.MustParsePrefix("fd00::/122"), netip.MustParsePrefix("fd00::40/124"),
}

var serviceNames = []string{"a", "b", "c", "d"}

// registryWorlds are the registries that a trace may begin with.
var registryWorlds = []model.ServiceOptions{
	{StaticSize: -1},
	{StaticSize: -1, Lowest: true},
	{StaticSize: -1, NeverSpill: true},
	{StaticSize: 3, Reserved: []netip.Prefix{netip.MustParsePrefix("10.0.0.8/30")}, Static: []netip.Prefix{netip.MustParsePrefix("fd00::1c/126")}},
}

const firstPort, lastPort = 30000, 30024

// FuzzServiceRegistry drives a registry and its twin with one trace: ranges that come,
// drain and go, and owners that ask for addresses and ports. SA3, SA5-SA8, X3, X5, X7
func FuzzServiceRegistry(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for world := range registryWorlds {
		for range 3 {
			f.Add(registrySeed(rng, byte(world), 200))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		trace := model.NewTrace(data)
		d := newRegistryDriver(t, registryWorlds[trace.Op(len(registryWorlds))])
		for ops := 0; trace.More() && ops < 400; ops++ {
			d.step(trace)
			if err := d.r.Check(); err != nil {
				t.Fatal(err)
			}
			if ops%8 == 0 { // what the owners hold was compared when it was answered
				d.compare()
			}
		}
		d.compare()
	})
}

// registrySeed makes a trace that begins with two ranges of each family.
func registrySeed(rng *rand.Rand, world byte, n int) []byte {
	data := []byte{world}
	for i, p := range []uint64{0, 4, 6} {
		data = model.AppendOp(data, 0, uint64(i), p, p)
	}
	for range n {
		data = model.AppendOp(data, byte(rng.IntN(12)), rng.Uint64N(1<<16), rng.Uint64N(1<<16), rng.Uint64N(1<<16))
	}
	return data
}

type registryDriver struct {
	t     *testing.T
	opts  model.ServiceOptions
	r     *servicealloc.Registry
	twin  *model.ServiceRegistry
	draws func() uint64
	last  servicealloc.Change // as the hook saw it
}

func newRegistryDriver(t *testing.T, o model.ServiceOptions) *registryDriver {
	d := &registryDriver{t: t, opts: o, draws: draws(o)}
	r, err := servicealloc.NewRegistry(servicealloc.PortRange{First: firstPort, Last: lastPort},
		append(serviceOptions(o, rand.NewPCG(7, 7), true), servicealloc.OnChange(func(c servicealloc.Change) { d.last = c }))...)
	if err != nil {
		t.Fatal(err)
	}
	d.r = r
	d.twin = &model.ServiceRegistry{Ranges: model.NewServiceRanges(o), Owners: map[string]model.ServiceGrant{}}
	ports := o
	ports.StaticSize = -1 // StaticSize of a registry is about addresses
	for i := range d.twin.Ports {
		d.twin.Ports[i] = model.NewServicePorts(firstPort, lastPort, ports)
	}
	d.twin.Draw = d.draw
	for _, slot := range []int{2, 3, 4, 0, 1} { // the order in which the engine is built
		d.draw(slot)
	}
	return d
}

func (d *registryDriver) draw(slot int) {
	if slot >= 2 {
		d.twin.Port[slot-2] = d.draws()
		return
	}
	d.twin.Ranges.Which[slot] = d.draws()
	d.twin.Ranges.Start[slot] = d.draws()
}

// step performs one operation on both and compares the answers.
func (d *registryDriver) step(trace *model.Trace) {
	op, a, b, c := trace.Op(12), trace.Uint(), trace.Uint(), trace.Uint()
	name := serviceNames[a%4]
	owner := string(rune('A' + a%9))
	switch op {
	case 0:
		ps := []netip.Prefix{servicePrefixes[b%9]}
		if c%9 != b%9 {
			ps = append(ps, servicePrefixes[c%9])
		}
		d.same("AddRange", d.r.AddRange(name, ps...), d.twin.Ranges.Add(name, ps...))
	case 1:
		d.same("DrainRange", d.r.DrainRange(name), d.twin.Ranges.Drain(name))
	case 2:
		d.remaining(name)
		d.same("RemoveRange", d.r.RemoveRange(name), d.twin.Ranges.Remove(name))
	case 3, 4, 5, 6:
		d.allocate(owner, d.request(b, c))
	case 7, 8:
		d.replace(owner, b%7 == 0, d.request(b, c))
	case 9, 10:
		got, ok := d.r.Release(owner)
		want := d.twin.Owners[owner]
		if ok != d.twin.Release(owner) || ok && !sameGrant(got, want) {
			d.t.Fatalf("Release(%s) = %+v, %v; want %+v", owner, got, ok, want)
		}
	case 11:
		d.restart()
	}
}

func (d *registryDriver) same(what string, got error, want string) {
	if sentinel(got) != want {
		d.t.Fatalf("%s: %v, want %q", what, got, want)
	}
}

// request makes a request of two numbers: which families and ports, and what they name.
func (d *registryDriver) request(b, c uint64) servicealloc.Request {
	var req servicealloc.Request
	v4, v6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	if b&4 != 0 {
		v4 = step(netip.MustParseAddr("10.0.0.0"), b>>5%140)
	}
	if b&8 != 0 {
		v6 = step(netip.MustParseAddr("fd00::"), c>>5%84)
	}
	if b&1 != 0 {
		req.Addrs = append(req.Addrs, v4)
	}
	if b&2 != 0 {
		req.Addrs = append(req.Addrs, v6)
	}
	if b&16 != 0 {
		slices.Reverse(req.Addrs)
	}
	for i := range c % 4 {
		p := servicealloc.Port{Protocol: servicealloc.Protocol(1 + (c>>2+i)%3)}
		if c>>4&i != 0 {
			p.Number = uint16(firstPort - 1 + (c>>6+i)%30)
		}
		req.Ports = append(req.Ports, p)
	}
	return req
}

func step(ip netip.Addr, n uint64) netip.Addr {
	for range n {
		ip = ip.Next()
	}
	return ip
}

func twinPorts(ports []servicealloc.Port) (out []model.ServicePort) {
	for _, p := range ports {
		out = append(out, model.ServicePort{Protocol: uint8(p.Protocol), Number: p.Number})
	}
	return out
}

func sameGrant(got servicealloc.Grant, want model.ServiceGrant) bool {
	return got.Generation == want.Generation && got.Spilled == want.Spilled &&
		slices.Equal(got.Addrs, want.Addrs) && slices.Equal(twinPorts(got.Ports), want.Ports)
}

func (d *registryDriver) allocate(owner string, req servicealloc.Request) {
	t := d.t
	dry, dryErr := d.r.DryRun(owner, req)
	if err := d.r.Check(); err != nil {
		t.Fatalf("after DryRun: %v", err)
	}
	_, held := d.r.Get(owner)
	d.last = servicealloc.Change{}
	got, err := d.r.Allocate(owner, req)
	want, wantErr := d.twin.Allocate(owner, req.Addrs, twinPorts(req.Ports))
	d.agree("Allocate", owner, req, got, err, want, wantErr)
	if sentinel(dryErr) != sentinel(err) || err == nil && !sameGrant(dry, want) {
		t.Fatalf("DryRun(%s, %+v) = %+v, %v; Allocate %+v, %v", owner, req, dry, dryErr, got, err)
	}
	if told := d.last.Op == servicealloc.OpAllocate && d.last.Owner == owner; told != (err == nil && !held) {
		t.Fatalf("the hook saw %+v after Allocate(%s): %v", d.last, owner, err)
	}
}

func (d *registryDriver) replace(owner string, stale bool, req servicealloc.Request) {
	generation := d.twin.Owners[owner].Generation
	if stale {
		generation++
	}
	got, err := d.r.Replace(owner, generation, req)
	want, wantErr := d.twin.Replace(owner, generation, req.Addrs, twinPorts(req.Ports))
	d.agree("Replace", owner, req, got, err, want, wantErr)
}

// agree compares answers. The engine looks at all of a request before it takes any, the
// twin goes from part to part, so that a request with several faults has several right
// errors; both must fail or neither.
func (d *registryDriver) agree(what, owner string, req servicealloc.Request, got servicealloc.Grant, err error, want model.ServiceGrant, wantErr string) {
	if (err == nil) != (wantErr == "") || err == nil && !sameGrant(got, want) {
		d.t.Fatalf("%s(%s, %+v) = %+v, %v; want %+v, %q", what, owner, req, got, err, want, wantErr)
	}
	if e := (*servicealloc.Error)(nil); err != nil && !errors.As(err, &e) {
		d.t.Fatalf("%s: %T is no *Error", what, err)
	}
}

func (d *registryDriver) remaining(name string) {
	grants, err := d.r.Remaining(name)
	if d.twin.Ranges.Entries[name] == nil {
		d.same("Remaining", err, model.ServiceNoRange)
		return
	}
	var want []string
	for _, ip := range d.twin.Ranges.Remaining(name) {
		g, _ := d.r.OwnerOf(ip)
		if !slices.Contains(want, g.Owner) {
			want = append(want, g.Owner)
		}
	}
	var got []string
	for _, g := range grants {
		got = append(got, g.Owner)
	}
	if !slices.Equal(got, want) {
		d.t.Fatalf("Remaining(%s) = %v, want %v", name, got, want)
	}
}

// restart goes on with a registry restored from a snapshot, both sides with a new source.
func (d *registryDriver) restart() {
	t := d.t
	data, err := d.r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	opts := []servicealloc.Option{servicealloc.OnChange(func(c servicealloc.Change) { d.last = c })}
	if !d.opts.Lowest {
		opts = append(opts, servicealloc.Random(rand.NewPCG(d.twin.Last, 1)))
		mine := rand.NewPCG(d.twin.Last, 1)
		for range 7 { // what is drawn when a registry is made; the snapshot has it already
			mine.Uint64()
		}
		d.draws = mine.Uint64
	}
	if d.r, err = servicealloc.RestoreRegistry(data, opts...); err != nil {
		t.Fatal(err)
	}
	again, err := d.r.MarshalBinary()
	if err != nil || !bytes.Equal(again, data) {
		t.Fatalf("a snapshot of the restored registry differs (%v)", err)
	}
}

// compare compares the states.
func (d *registryDriver) compare() {
	t := d.t
	var names []string
	for g := range d.r.All() {
		names = append(names, g.Owner)
		if !sameGrant(g, d.twin.Owners[g.Owner]) {
			t.Fatalf("%s holds %+v, want %+v", g.Owner, g, d.twin.Owners[g.Owner])
		}
	}
	if len(names) != len(d.twin.Owners) || !slices.IsSorted(names) {
		t.Fatalf("owners %v, want %d", names, len(d.twin.Owners))
	}
	for _, f := range []servicealloc.Family{servicealloc.IPv4, servicealloc.IPv6} {
		var want servicealloc.Stats
		for _, g := range d.twin.Ranges.Groups(f == servicealloc.IPv4) {
			for band, s := range map[int]*servicealloc.BandStats{model.ServiceStatic: &want.Static, model.ServiceDynamic: &want.Dynamic} {
				size, used := g.Count(band)
				*s = servicealloc.BandStats{Capacity: s.Capacity + uint64(size), Used: s.Used + uint64(used), Free: s.Free + uint64(size-used)}
			}
			_, used := g.Count(model.ServiceClosed)
			want.Closed += uint64(used)
		}
		if got := d.r.Stats(f); got != want {
			t.Fatalf("%v: %+v, want %+v", f, got, want)
		}
	}
}
