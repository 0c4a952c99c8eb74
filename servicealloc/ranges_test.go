package servicealloc

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/model"
)

// drain takes every IPv4 address that is to be had.
func drain(t *testing.T, r *Ranges) (got []netip.Addr) {
	t.Helper()
	seen := map[netip.Addr]bool{}
	for {
		a, _, err := r.AllocateNext(IPv4)
		if err != nil {
			wantErr(t, err, ErrFull)
			check(t, r)
			return got
		}
		if seen[a] {
			t.Fatalf("%v twice", a)
		}
		seen[a] = true
		got = append(got, a)
	}
}

// Nothing, then one range, then another beside it. SA6
func TestRangesMultiple(t *testing.T) {
	r := newRangesT(t)
	if _, _, err := r.AllocateNext(IPv4); err != ErrFull {
		t.Fatal(err)
	}
	wantErr(t, r.Add("test", pfx("192.168.0.0/28")), nil)
	if n := len(drain(t, r)); n != 14 {
		t.Fatal(n)
	}
	wantErr(t, r.Add("test2", pfx("10.0.0.0/28")), nil)
	wantErr(t, r.Allocate(ip("10.0.0.11")), nil)
	if n := len(drain(t, r)); n != 13 {
		t.Fatal(n)
	}
	if got := slices.Collect(r.All()); len(got) != 28 || !slices.IsSortedFunc(got, netip.Addr.Compare) {
		t.Fatal(got)
	}
	if s := r.Stats(IPv4); s.Dynamic.Used != 28 || s.Dynamic.Free != 0 {
		t.Fatal(s)
	}
}

// The network address of a /24 is usable in the /16 around it. SA6
func TestRangesShadow(t *testing.T) {
	r := newRangesT(t)
	wantErr(t, r.Add("small", pfx("192.168.1.0/24")), nil)
	wantErr(t, r.Allocate(ip("192.168.1.0")), ErrOutOfRange)
	wantErr(t, r.Allocate(ip("192.168.1.255")), ErrOutOfRange)
	wantErr(t, r.Add("large", pfx("192.168.0.0/16")), nil)
	wantErr(t, r.Allocate(ip("192.168.1.0")), nil)
	wantErr(t, r.Allocate(ip("192.168.1.255")), nil)
	wantErr(t, r.Allocate(ip("192.168.0.0")), ErrOutOfRange)
	// Static in one of them is static.
	for a, want := range map[string]Band{"192.168.1.1": Static, "192.168.1.16": Static, "192.168.1.17": Dynamic, "192.168.0.255": Static, "192.168.1.0": Static, "192.168.2.1": Dynamic} {
		if got := r.Band(ip(a)); got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
	}
	// The /16 can't go while 192.168.1.0 is held, though the /24 stays.
	wantErr(t, r.Remove("large"), ErrInUse)
	left, err := r.Remaining("large")
	if err != nil || !slices.Equal(left, []netip.Addr{ip("192.168.1.0"), ip("192.168.1.255")}) {
		t.Fatal(left, err)
	}
	r.Release(left[0])
	r.Release(left[1])
	wantErr(t, r.Remove("large"), nil)
	wantErr(t, r.Allocate(ip("192.168.1.0")), ErrOutOfRange)
	check(t, r)
}

// A range grows by a larger one around it: what is held stays held. SA6
func TestRangesGrow(t *testing.T) {
	r := newRangesT(t)
	wantErr(t, r.Add("test", pfx("192.168.0.0/28")), nil)
	first := drain(t, r)
	wantErr(t, r.Add("test2", pfx("192.168.0.0/24")), nil)
	for _, a := range first {
		if !r.Has(a) {
			t.Fatal(a)
		}
	}
	if n := len(drain(t, r)); n != 254-14 {
		t.Fatal(n)
	}
	wantErr(t, r.Remove("test"), nil) // the /24 has them all
	if len(slices.Collect(r.All())) != 254 {
		t.Fatal("lost")
	}
}

// A range shrinks to a smaller one inside it. SA6
func TestRangesShrink(t *testing.T) {
	r := newRangesT(t)
	wantErr(t, r.Add("test", pfx("192.168.0.0/24")), nil)
	for _, a := range drain(t, r) {
		r.Release(a)
	}
	wantErr(t, r.Allocate(ip("192.168.0.5")), nil)
	wantErr(t, r.Add("cidr2", pfx("192.168.0.0/28")), nil)
	wantErr(t, r.Remove("test"), nil)
	if n := len(drain(t, r)); n != 13 || !r.Has(ip("192.168.0.5")) {
		t.Fatal(n)
	}
	wantErr(t, r.Allocate(ip("192.168.0.253")), ErrOutOfRange)
}

// Draining: named by two ranges, a prefix drains when both do. SA6
func TestRangesDrain(t *testing.T) {
	r := newRangesT(t)
	wantErr(t, r.Add("a", pfx("10.0.0.0/24"), pfx("fd00::/64")), nil)
	wantErr(t, r.Add("b", pfx("10.0.0.0/24")), nil)
	held, _, err := r.AllocateNext(IPv4)
	wantErr(t, err, nil)
	held6, _, err := r.AllocateNext(IPv6)
	wantErr(t, err, nil)

	wantErr(t, r.Drain("a"), nil)
	if _, _, err := r.AllocateNext(IPv6); err != ErrFull {
		t.Fatal(err)
	}
	wantErr(t, r.Allocate(ip("fd00::7")), ErrDraining)
	wantErr(t, r.Allocate(ip("fd00::")), ErrOutOfRange)
	other, _, err := r.AllocateNext(IPv4) // b still has it
	wantErr(t, err, nil)

	wantErr(t, r.Drain("b"), nil)
	wantErr(t, r.Drain("b"), nil)
	if _, _, err := r.AllocateNext(IPv4); err != ErrFull {
		t.Fatal(err)
	}
	wantErr(t, r.Allocate(ip("10.0.0.7")), ErrDraining)
	if s := r.Stats(IPv4); s != (Stats{Closed: 2}) {
		t.Fatalf("%+v", s)
	}
	for _, a := range []netip.Addr{held, held6, other} {
		if !r.Has(a) {
			t.Fatal(a)
		}
	}
	wantErr(t, r.Remove("a"), ErrInUse) // for held6; the IPv4 ones b has as well
	if left, _ := r.Remaining("a"); !slices.Equal(left, []netip.Addr{held6}) {
		t.Fatal(left)
	}
	if !r.Release(held6) { // from a range that drains
		t.Fatal(held6)
	}
	wantErr(t, r.Remove("a"), nil)
	wantErr(t, r.Remove("b"), ErrInUse)
	check(t, r)

	wantErr(t, r.Add("again", pfx("10.0.0.0/24")), nil) // the same prefix, ready
	if _, _, err := r.AllocateNext(IPv4); err != nil {
		t.Fatal(err)
	}
	wantErr(t, r.Remove("b"), nil)
	check(t, r)
}

// What Add, Drain, Remove and the calls refuse. SA6, X1
func TestRangesRefuse(t *testing.T) {
	r := newRangesT(t)
	wantErr(t, r.Add("a", pfx("10.0.0.0/24")), nil)
	before := snapshotOf(t, r)
	wantErr(t, r.Add("a", pfx("10.1.0.0/24")), ErrExists)
	wantErr(t, r.Add("b"), ErrBadPrefix)
	for _, p := range []netip.Prefix{{}, pfx("10.0.0.1/24"), pfx("::ffff:10.0.0.0/120"), netip.PrefixFrom(ip("fe80::1%x"), 64)} {
		wantErr(t, r.Add("b", pfx("10.2.0.0/16"), p), ErrBadPrefix)
	}
	wantErr(t, r.Drain("none"), ErrNoRange)
	wantErr(t, r.Remove("none"), ErrNoRange)
	_, err := r.Remaining("none")
	wantErr(t, err, ErrNoRange)
	for _, f := range []Family{0, 5} {
		_, _, err := r.AllocateNext(f)
		wantErr(t, err, ErrBadRequest)
		_, _, err = r.DryRunNext(f)
		wantErr(t, err, ErrBadRequest)
		_, err = r.AllocateN(f, make([]netip.Addr, 1))
		wantErr(t, err, ErrBadRequest)
		if r.Stats(f) != (Stats{}) {
			t.Error(f)
		}
	}
	for _, a := range []netip.Addr{{}, ip("::ffff:10.0.0.5"), ip("fd00::1"), ip("10.0.1.1"), ip("9.255.255.255"), ip("10.0.0.0"), ip("10.0.0.255")} {
		wantErr(t, r.Allocate(a), ErrOutOfRange)
		wantErr(t, r.DryRun(a), ErrOutOfRange)
		if r.Has(a) || r.Release(a) || r.Band(a) != Closed {
			t.Error(a)
		}
	}
	if snapshotOf(t, r) != before {
		t.Error("something changed")
	}
	many := make([]netip.Prefix, 4096)
	for i := range many {
		many[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 24)
	}
	wantErr(t, r.Add("many", many...), ErrLimit)
	wantErr(t, r.Add("most", many[1:]...), nil)
	if _, err := RestoreRanges([]byte(snapshotOf(t, r))); err != nil {
		t.Error(err)
	}
	r.core.entries[0].Prefixes = append(r.core.entries[0].Prefixes, pfx("12.0.0.0/8"))
	_, err = RestoreRanges([]byte(snapshotOf(t, r)))
	wantErr(t, err, ErrSnapshot)
	_, err = NewRanges(ReservePorts(PortRange{1, 2}))
	wantErr(t, err, ErrBadOption)
}

// Which ranges a prefix or an address concerns; the tables are those of Kubernetes'
// servicecidr. SA6
func TestRangesLookup(t *testing.T) {
	sets := map[int][]RangeInfo{
		1: {{Name: "kubernetes", Prefixes: []netip.Prefix{pfx("10.0.0.0/24"), pfx("2001:db8::/96")}}},
	}
	sets[2] = append(slices.Clone(sets[1]), RangeInfo{Name: "secondary", Prefixes: []netip.Prefix{pfx("10.0.0.0/16"), pfx("2001:db8::/64")}})
	sets[3] = append(slices.Clone(sets[2]), RangeInfo{Name: "kubernetes2", Prefixes: []netip.Prefix{pfx("10.0.0.0/24"), pfx("2001:db8::/96")}})
	one, two, three := []string{"kubernetes"}, []string{"kubernetes", "secondary"}, []string{"kubernetes", "kubernetes2", "secondary"}
	second := []string{"secondary"}
	for _, tt := range []struct {
		set                   int
		prefix                string
		overlapping, covering []string
	}{
		{1, "10.0.0.0/26", one, one}, {1, "10.0.0.0/24", one, one}, {1, "10.0.0.0/16", one, nil}, {1, "192.168.0.0/24", nil, nil},
		{1, "2001:db8::/112", one, one}, {1, "2001:db8::/96", one, one}, {1, "2001:db8::/64", one, nil}, {1, "2001:db2::/112", nil, nil},
		{2, "10.0.0.0/24", two, two}, {2, "10.0.0.0/18", two, second}, {2, "10.0.0.0/8", two, nil}, {2, "192.168.0.0/24", nil, nil},
		{2, "2001:db8::/96", two, two}, {2, "2001:db8::/72", two, second}, {2, "2001:db8::/52", two, nil}, {2, "2001:db2::/64", nil, nil},
		{3, "10.0.0.0/28", three, three}, {3, "10.0.0.0/8", three, nil},
	} {
		r := newRangesT(t)
		for _, e := range sets[tt.set] {
			wantErr(t, r.Add(e.Name, e.Prefixes...), nil)
		}
		if got := names(r.Overlapping(pfx(tt.prefix))); !slices.Equal(got, tt.overlapping) {
			t.Errorf("%d ranges overlapping %s: %v, want %v", tt.set, tt.prefix, got, tt.overlapping)
		}
		if got := names(r.Covering(pfx(tt.prefix))); !slices.Equal(got, tt.covering) {
			t.Errorf("%d ranges covering %s: %v, want %v", tt.set, tt.prefix, got, tt.covering)
		}
	}
	r := newRangesT(t)
	for _, e := range sets[3] {
		wantErr(t, r.Add(e.Name, e.Prefixes...), nil)
	}
	for a, want := range map[string][]string{
		"10.0.0.1": three, "10.0.0.255": second, "10.0.0.0": nil, "10.0.1.0": second, "10.0.255.255": nil, "10.1.0.0": nil, "192.168.0.1": nil,
		"2001:db8::": nil, "2001:db8::1": three, "2001:db8::ffff:ffff": three, "2001:db8::1:0:0": second,
		"2001:db8::ffff:ffff:ffff:ffff": second, "2001:db8:0:1::": nil, "::ffff:10.0.0.1": nil,
	} {
		if got := names(r.Serving(ip(a))); !slices.Equal(got, want) {
			t.Errorf("serving %s: %v, want %v", a, got, want)
		}
	}
	if got := names(r.List()); !slices.Equal(got, three) {
		t.Error(got)
	}
}

func names(infos []RangeInfo) (out []string) {
	for _, i := range infos {
		out = append(out, i.Name)
	}
	return out
}

// The usable addresses of one prefix, at its edges. SA1
func TestPrefixHas(t *testing.T) {
	for _, tt := range []struct {
		prefix, addr string
		want         bool
	}{
		{"192.168.0.0/24", "192.168.0.1", true}, {"192.168.0.0/24", "192.168.0.0", false}, {"192.168.0.0/24", "192.168.0.255", false},
		{"192.168.0.0/24", "192.168.1.2", false}, {"2001:db2::/96", "2001:db2::1", true}, {"2001:db2::/96", "2001:db2::", false},
		{"2001:db2::/96", "2001:db2::ffff:ffff", true}, {"2001:db2::/96", "2001:db2::1:ffff:ffff", false},
		{"192.168.0.0/31", "192.168.0.1", false}, {"10.0.0.0/12", "10.15.255.255", false}, {"10.0.0.0/12", "10.15.255.254", true},
	} {
		if got := new(settings).has(pfx(tt.prefix), ip(tt.addr)); got != tt.want {
			t.Errorf("%s has %s: %v", tt.prefix, tt.addr, got)
		}
	}
}

// Calls of Ranges against the twin, which derives everything each time, while ranges
// nest, part and go. SA3, SA4, SA6
func TestRangesModel(t *testing.T) {
	prefixes := []netip.Prefix{pfx("10.0.0.0/27"), pfx("10.0.0.0/26"), pfx("10.0.0.64/27"), pfx("10.0.0.16/28"), pfx("10.0.0.0/24"), pfx("10.0.0.96/29")}
	for seed, o := range []model.ServiceOptions{{StaticSize: -1}, {StaticSize: 2, NeverSpill: true}, {StaticSize: -1, Lowest: true},
		{StaticSize: -1, Reserved: []netip.Prefix{pfx("10.0.0.20/30")}, Static: []netip.Prefix{pfx("10.0.0.40/29")}}} {
		mine := rand.NewPCG(5, 5)
		draw := mine.Uint64
		opts := []Option{Random(rand.NewPCG(5, 5)), Reserve(o.Reserved...), StaticPrefixes(o.Static...)}
		if o.Lowest {
			opts[0], draw = LowestFirst(), func() uint64 { return 0 }
		}
		if o.StaticSize >= 0 {
			opts = append(opts, StaticSize(uint64(o.StaticSize)))
		}
		if o.NeverSpill {
			opts = append(opts, NeverSpill())
		}
		r, twin := newRangesT(t, opts...), model.NewServiceRanges(o)
		for i := range 2 {
			twin.Which[i], twin.Start[i] = draw(), draw()
		}
		d := &rangesDriver{t, r, twin, o, rand.New(rand.NewPCG(uint64(seed), 1)), draw}
		for range 1200 {
			d.step(prefixes)
			check(t, r)
			if got := slices.Collect(r.All()); len(got) != len(twin.Held) || !slices.IsSortedFunc(got, netip.Addr.Compare) {
				t.Fatal(got, twin.Held)
			}
		}
	}
}

type rangesDriver struct {
	t    *testing.T
	r    *Ranges
	twin *model.ServiceRanges
	o    model.ServiceOptions
	rng  *rand.Rand
	draw func() uint64
}

// step performs one operation on both and compares the answers.
func (d *rangesDriver) step(prefixes []netip.Prefix) {
	t, r, twin, rng := d.t, d.r, d.twin, d.rng
	name := string(rune('a' + rng.IntN(4)))
	a := prefixes[4].Addr()
	for range rng.IntN(130) {
		a = a.Next()
	}
	switch rng.IntN(12) {
	case 0:
		p := prefixes[rng.IntN(len(prefixes))]
		same(t, r.Add(name, p), twin.Add(name, p))
	case 1:
		same(t, r.Drain(name), twin.Drain(name))
	case 2:
		same(t, r.Remove(name), twin.Remove(name))
	case 3, 4, 5:
		d.next()
	case 6, 7:
		fail := twin.Take(a)
		same(t, r.DryRun(a), fail)
		same(t, r.Allocate(a), fail)
	case 8:
		d.batch(rng.IntN(20))
	default:
		if got := r.Release(a); got != twin.Held[a] {
			t.Fatal(a, got)
		}
		delete(twin.Held, a)
	}
}

// next compares a pick, dry and real.
func (d *rangesDriver) next() {
	t := d.t
	dry, _, dryErr := d.r.DryRunNext(IPv4)
	got, spilled, err := d.r.AllocateNext(IPv4)
	want, spill, fail := d.twin.Next(true)
	same(t, err, fail)
	if got != want || spilled != spill || dry != got || dryErr != err {
		t.Fatalf("%v, %v (dry %v); want %v, %v", got, spilled, dry, want, spill)
	}
	if err == nil {
		d.twin.Which[0], d.twin.Start[0] = d.draw(), d.draw()
	}
}

// batch takes n addresses, each of which must be one that the twin may give.
func (d *rangesDriver) batch(n int) {
	t := d.t
	free := d.r.Stats(IPv4).Dynamic.Free
	if !d.o.NeverSpill {
		free += d.r.Stats(IPv4).Static.Free
	}
	dst := make([]netip.Addr, n)
	if _, err := d.r.AllocateN(IPv4, dst); (err == nil) != (uint64(n) <= free) {
		t.Fatal(n, free, err)
	} else if err != nil || n == 0 {
		return
	}
	for _, got := range dst {
		same(t, nil, d.twin.Take(got))
	}
	d.twin.Which[0], d.twin.Start[0] = d.draw(), d.draw()
}

func same(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if e, ok := err.(*Error); ok {
		got = e.Err.Error()
	} else if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Fatalf("%v, want %q", err, want)
	}
}

// Nested ranges longer than a bitmap: windows are carried over when the largest prefix
// changes. SA6, X8
func TestRangesBeyond64Bits(t *testing.T) {
	r := newRangesT(t)
	wantErr(t, r.Add("64", pfx("fd00:0:0:5::/64")), nil)
	for range 100 {
		if _, _, err := r.AllocateNext(IPv6); err != nil {
			t.Fatal(err)
		}
	}
	held := slices.Collect(r.All())
	wantErr(t, r.Add("48", pfx("fd00::/48")), nil)
	check(t, r)
	wantErr(t, r.Allocate(ip("fd00:0:0:ffff::1")), nil)
	wantErr(t, r.Allocate(ip("fd00:0:0:5::")), nil) // the base address of the /64 only
	wantErr(t, r.Add("32", pfx("fd00::/32")), nil)
	wantErr(t, r.Drain("48"), nil)
	wantErr(t, r.Remove("48"), nil)
	check(t, r)
	wantErr(t, r.Remove("32"), ErrInUse)
	left, _ := r.Remaining("32")
	if !slices.Equal(left, []netip.Addr{ip("fd00:0:0:5::"), ip("fd00:0:0:ffff::1")}) {
		t.Fatal(left)
	}
	for _, a := range left {
		r.Release(a)
	}
	wantErr(t, r.Remove("32"), nil)
	if got := slices.Collect(r.All()); !slices.Equal(got, held) {
		t.Fatal(got)
	}
	check(t, r)
}
