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
	"github.com/ipalloc/ipalloc/internal/test/seeds"
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
var registryWorlds = []struct {
	opts        model.ServiceOptions
	perProtocol bool
}{
	{model.ServiceOptions{StaticSize: -1}, false},
	{model.ServiceOptions{StaticSize: -1, Lowest: true}, true},
	{model.ServiceOptions{StaticSize: -1, NeverSpill: true}, false},
	{model.ServiceOptions{StaticSize: 3, Static: []netip.Prefix{netip.MustParsePrefix("fd00::1c/126")}}, true},
}

const firstPort, lastPort = 30000, 30024

// replayRegistry drives a registry and its twin with at most so many operations of a
// trace: ranges that come, change, drain, are reserved and go, owners that ask for
// addresses and ports, and transactions that are committed, rolled back or cut off by a
// restart. A second registry follows the changes of the first.
func replayRegistry(t *testing.T, data []byte, most int) {
	trace := model.NewTrace(data)
	world := registryWorlds[trace.Op(len(registryWorlds))]
	d := newRegistryDriver(t, world.opts, world.perProtocol)
	for ops := 0; trace.More() && ops < most; ops++ {
		d.step(trace)
		if err := d.r.Check(); err != nil {
			t.Fatal(err)
		}
		if ops%8 == 0 { // what the owners hold was compared when it was answered
			d.compare()
		}
	}
	d.compare()
}

func TestServiceRegistryAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 12, 60) {
		for world := range registryWorlds {
			replayRegistry(t, registrySeed(rand.New(rand.NewPCG(seed, 1)), byte(world), 200), 400)
		}
	}
}

func FuzzServiceRegistry(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for world := range registryWorlds {
		for range 4 {
			f.Add(registrySeed(rng, byte(world), 20))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { replayRegistry(t, data, 40) })
}

// registrySeed makes a trace that begins with two ranges of each family.
func registrySeed(rng *rand.Rand, world byte, n int) []byte {
	data := []byte{world}
	for i, p := range []uint64{0, 4, 6} {
		data = model.AppendOp(data, 0, uint64(i), p, p)
	}
	for range n {
		data = model.AppendOp(data, byte(rng.IntN(registryOps)), rng.Uint64N(1<<16), rng.Uint64N(1<<16), rng.Uint64N(1<<16))
	}
	return data
}

type registryDriver struct {
	t           *testing.T
	opts        model.ServiceOptions
	ports       servicealloc.PortRange
	r, follower *servicealloc.Registry
	twin        *model.ServiceRegistry
	open        map[string]*servicealloc.Tx
}

func newRegistryDriver(t *testing.T, o model.ServiceOptions, perProtocol bool) *registryDriver {
	d := &registryDriver{t: t, opts: o, open: map[string]*servicealloc.Tx{},
		ports: servicealloc.PortRange{First: firstPort, Last: lastPort, PerProtocol: perProtocol}}
	d.r, d.follower = d.new(servicealloc.OnChange(d.follow)), d.new()
	ports := o
	d.twin = &model.ServiceRegistry{Ranges: model.NewServiceRanges(o), Ports: model.NewServicePorts(firstPort, lastPort, ports),
		PerProtocol: perProtocol, Owners: map[string]model.ServiceGrant{}, Open: map[string]model.ServiceGrant{}, Draw: draws(o)}
	d.twin.U = d.twin.Draw()
	return d
}

func (d *registryDriver) new(more ...servicealloc.Option) *servicealloc.Registry {
	r, err := servicealloc.NewRegistry(d.ports, append(serviceOptions(d.opts), more...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// follow repeats a change on the follower, as a journal does.
func (d *registryDriver) follow(c servicealloc.Change) {
	if err := d.follower.Apply(c); err != nil {
		d.t.Error(err)
	}
}

const registryOps = 23

// step performs one operation on both and compares the answers.
func (d *registryDriver) step(trace *model.Trace) {
	op, a, b, c := trace.Op(registryOps), trace.Uint(), trace.Uint(), trace.Uint()
	name := serviceNames[a%4]
	owner := string(rune('A' + a%9))
	switch op {
	case 0, 1:
		e := model.ServiceEntry{Prefixes: []netip.Prefix{servicePrefixes[b%9]}, Draining: a>>2%4 == 0, Reserved: a>>4%4 == 0}
		if c%9 != b%9 {
			e.Prefixes = append(e.Prefixes, servicePrefixes[c%9])
		}
		d.setRange(name, e)
	case 2, 3:
		if e, ok := d.twin.Ranges.Entries[name]; ok {
			e.Draining = !e.Draining
			d.setRange(name, e)
		}
	case 4:
		d.twin.Sync()
		d.same("RemoveRange", d.r.RemoveRange(name), d.twin.Ranges.Remove(name))
	case 5, 6, 7, 8:
		d.allocate(owner, 0, d.request(b, c))
	case 9:
		generation := d.twin.Owners[owner].Generation
		if b%7 == 0 {
			generation++
		}
		d.allocate(owner, generation, d.request(b, c))
	case 10, 11, 12:
		req := d.request(b, c)
		tx, got, err := d.r.Begin(owner, req)
		want, fail := d.twin.Begin(owner, req.Addrs, twinPorts(req.Ports))
		d.agree("Begin", owner, req, got, err, want, fail)
		if err == nil {
			d.open[owner] = tx
		}
	case 13, 14:
		d.end(owner, op == 13)
	case 15, 16:
		want := d.twin.Owners[owner]
		got, err := d.r.Release(owner, 0)
		d.same("Release", err, d.twin.Release(owner, 0))
		if err == nil && !sameGrant(got, want) {
			d.t.Fatalf("Release(%s) = %+v, want %+v", owner, got, want)
		}
	case 17:
		d.restart()
	case 18, 19, 20:
		d.load(owner, a>>4%3, b, c)
	case 21, 22:
		d.move(owner, string(rune('A'+b%9)))
	}
}

// load records something of an owner: what is free, what a transaction has taken, or
// what another owner holds.
func (d *registryDriver) load(owner string, generation, b, c uint64) {
	g := servicealloc.Grant{Owner: owner}
	if generation > 0 {
		g.Generation = d.twin.Last + generation
	}
	for _, n := range []uint64{b % 140, c % 140} {
		ip := step(netip.MustParseAddr("10.0.0.0"), n)
		if s := (model.ServiceSubject{Addr: ip}); d.twin.Ranges.Band(ip) != model.ServiceClosed || len(d.twin.Claims[s]) > 0 {
			g.Addrs = append(g.Addrs, ip)
		}
	}
	protocols := []servicealloc.Protocol{"", servicealloc.TCP, servicealloc.UDP, servicealloc.SCTP}
	g.Ports = append(g.Ports, servicealloc.Port{Protocol: protocols[b>>8%4], Number: uint16(firstPort + c>>8%25)})
	want := d.twin.Load(owner, g.Generation, g.Addrs, twinPorts(g.Ports))
	var got []string
	for _, p := range d.r.Load([]servicealloc.Grant{g}) {
		got = append(got, sentinel(p))
	}
	if !slices.Equal(got, want) {
		d.t.Fatalf("Load(%+v): %q, want %q", g, got, want)
	}
}

// move passes the first address of an owner to another one.
func (d *registryDriver) move(from, to string) {
	a, b := d.twin.Owners[from], d.twin.Owners[to]
	if from == to || len(a.Addrs) == 0 {
		return
	}
	left, got, err := d.r.Move(servicealloc.Grant{Owner: from, Generation: a.Generation, Addrs: a.Addrs[:1]},
		servicealloc.Grant{Owner: to, Generation: b.Generation, Addrs: a.Addrs[:1]})
	d.same("Move", err, d.twin.Move(from, to, a.Addrs[0]))
	if err == nil && (left != d.twin.Owners[from].Generation || got != d.twin.Owners[to].Generation) {
		d.t.Fatalf("Move from %s to %s: %d and %d, want %+v and %+v", from, to, left, got, d.twin.Owners[from], d.twin.Owners[to])
	}
}

func (d *registryDriver) setRange(name string, e model.ServiceEntry) {
	d.twin.Sync()
	info := servicealloc.RangeInfo{Name: name, Prefixes: e.Prefixes, Draining: e.Draining, Reserved: e.Reserved}
	d.same("SetRange", d.r.SetRange(info), d.twin.Ranges.Set(name, e))
}

func (d *registryDriver) same(what string, got error, want string) {
	if sentinel(got) != want {
		d.t.Fatalf("%s: %v, want %q", what, got, want)
	}
}

func (d *registryDriver) end(owner string, commit bool) {
	tx := d.open[owner]
	if tx == nil {
		return
	}
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	d.same("end", end(), "")
	d.same("end again", tx.Rollback(), model.ServiceEnded)
	d.twin.End(owner, commit)
	delete(d.open, owner)
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
	protocols := []servicealloc.Protocol{"", servicealloc.TCP, servicealloc.UDP, servicealloc.SCTP}
	for i := range c % 4 {
		p := servicealloc.Port{Protocol: protocols[(c>>2+i)%4]}
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
	protocols := map[servicealloc.Protocol]uint8{servicealloc.TCP: 1, servicealloc.UDP: 2, servicealloc.SCTP: 3}
	for _, p := range ports {
		out = append(out, model.ServicePort{Protocol: protocols[p.Protocol], Number: p.Number})
	}
	return out
}

func sameGrant(got servicealloc.Grant, want model.ServiceGrant) bool {
	return got.Generation == want.Generation && got.Spilled == want.Spilled &&
		slices.Equal(got.Addrs, want.Addrs) && slices.Equal(twinPorts(got.Ports), want.Ports)
}

func (d *registryDriver) allocate(owner string, generation uint64, req servicealloc.Request) {
	t := d.t
	req.Generation, req.DryRun = generation, true
	dry, dryErr := d.r.Allocate(owner, req)
	if err := d.r.Check(); err != nil {
		t.Fatalf("after a dry run: %v", err)
	}
	req.DryRun = false
	got, err := d.r.Allocate(owner, req)
	want, wantErr := d.twin.Allocate(owner, generation, req.Addrs, twinPorts(req.Ports))
	d.agree("Allocate", owner, req, got, err, want, wantErr)
	if sentinel(dryErr) != sentinel(err) || err == nil && !sameGrant(dry, want) {
		t.Fatalf("dry run of Allocate(%s, %+v) = %+v, %v; Allocate %+v, %v", owner, req, dry, dryErr, got, err)
	}
}

// agree compares answers.
func (d *registryDriver) agree(what, owner string, req servicealloc.Request, got servicealloc.Grant, err error, want model.ServiceGrant, wantErr string) {
	if sentinel(err) != wantErr || err == nil && !sameGrant(got, want) {
		d.t.Fatalf("%s(%s, %+v) = %+v, %v; want %+v, %q", what, owner, req, got, err, want, wantErr)
	}
	if e := (*ipalloc.Error)(nil); err != nil && !errors.As(err, &e) {
		d.t.Fatalf("%s: %T is no *Error", what, err)
	}
}

// restart goes on with a registry restored from a snapshot. A transaction that was open
// is what its owner holds now, the old and the new.
func (d *registryDriver) restart() {
	t := d.t
	data, err := d.r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, tx := range d.open {
		_ = tx.Rollback() // on the old one, which has been cut off
	}
	clear(d.open)
	d.twin.Restart()
	d.r = d.new(servicealloc.OnChange(d.follow), servicealloc.Restore(data))
	d.follower = d.new(servicealloc.Restore(data))
	again, err := d.r.MarshalBinary()
	if err != nil || !bytes.Equal(again, data) {
		t.Fatalf("a snapshot of the restored registry differs (%v)", err)
	}
}

// compare compares the states.
func (d *registryDriver) compare() {
	t := d.t
	d.twin.Sync()
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
	st := d.r.Stats()
	v4, v6 := st.V4, st.V6
	for family, got := range []servicealloc.Stats{v4, v6} {
		var want servicealloc.Stats
		g := d.twin.Ranges.Family(family == 0)
		for band, s := range map[int]*servicealloc.BandStats{model.ServiceStatic: &want.Static, model.ServiceDynamic: &want.Dynamic} {
			size, used := g.Count(band)
			*s = servicealloc.BandStats{Capacity: uint64(size), Used: uint64(used), Free: uint64(size - used)}
		}
		_, used := g.Count(model.ServiceClosed)
		want.Closed = uint64(used)
		if got != want {
			t.Fatalf("family %d: %+v, want %+v", family, got, want)
		}
	}
	for s, all := range d.twin.Claims {
		if by, _, ok := d.r.OwnerOf(s.Addr); s.Addr.IsValid() && (ok != (len(all) > 0) || ok && by != all[0]) {
			t.Fatalf("%v is of %q, want %q", s.Addr, by, all)
		}
	}
	d.compareFollower()
}

// compareFollower compares the registry that heard of the changes: it has the same, and
// in its owners' grants what their open transactions have taken.
func (d *registryDriver) compareFollower() {
	if got, want := d.follower.Stats(), d.r.Stats(); got != want {
		d.t.Fatalf("the follower counts %+v, want %+v", got, want)
	}
	if err := d.follower.Check(); err != nil {
		d.t.Fatal(err)
	}
	for s := range d.twin.Claims {
		a, _, _ := d.r.OwnerOf(s.Addr)
		if b, _, _ := d.follower.OwnerOf(s.Addr); a != b {
			d.t.Fatalf("%v is of %q in the follower, want %q", s.Addr, b, a)
		}
	}
	for g := range d.r.All() {
		if len(d.open) > 0 {
			break
		}
		if f, ok := d.follower.Get(g.Owner); !ok || f.Generation != g.Generation || f.Spilled != g.Spilled || !slices.Equal(f.Addrs, g.Addrs) || !slices.Equal(f.Ports, g.Ports) {
			d.t.Fatalf("the follower has %+v, want %+v", f, g)
		}
	}
}
