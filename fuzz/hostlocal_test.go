package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

const hostlocalOps = 16

// hostlocalConfigs are what a trace switches between: tiny sets, some of which share addresses with those of
// another configuration, with the gateway first, last, in the middle, in another range or outside.
var hostlocalConfigs = [][]hostlocal.RangeSet{
	{{hostlocalRange("10.0.0.56/29", "", "", "")}},
	{{hostlocalRange("10.0.0.0/24", "10.0.0.60", "10.0.0.67", "10.0.0.63")}, {hostlocalRange("fd00::/120", "fd00::3e", "fd00::41", "fd00::40")}},
	{{hostlocalRange("10.0.0.0/25", "10.0.0.62", "10.0.0.65", "10.0.0.62"), hostlocalRange("10.0.0.128/25", "10.0.0.250", "10.0.0.255", "10.0.0.255")}},
	{
		{hostlocalRange("fd00::/64", "fd00::3f", "fd00::40", "fd01::1")},
		{hostlocalRange("10.0.0.56/29", "10.0.0.57", "10.0.0.57", ""), hostlocalRange("10.0.0.64/30", "10.0.0.64", "10.0.0.66", "10.0.0.57"), hostlocalRange("10.0.0.60/30", "", "", "")},
	},
	{
		{without("10.0.0.56/29", "10.0.0.57/32", "10.0.0.60/30"), without("10.0.0.64/30", "10.0.0.66/32", "10.0.0.66/31")},
		{without("fd00::38/125", "fd00::3e/127")},
	},
}

// without is a range with what it excludes.
func without(subnet string, spans ...string) hostlocal.Range {
	r := hostlocalRange(subnet, "", "", "")
	for _, s := range spans {
		r.Exclude = append(r.Exclude, netip.MustParsePrefix(s))
	}
	return r
}

func hostlocalRange(subnet, start, end, gateway string) hostlocal.Range {
	r := hostlocal.Range{Subnet: netip.MustParsePrefix(subnet)}
	for _, f := range []struct {
		at   *netip.Addr
		text string
	}{{&r.First, start}, {&r.Last, end}, {&r.Gateway, gateway}} {
		if f.text != "" {
			*f.at = netip.MustParseAddr(f.text)
		}
	}
	return r
}

// hostlocalReplay is the two sides of a replay: engines that share a store, and the model.
type hostlocalReplay struct {
	t      testing.TB
	store  store.Store
	e      [2]*hostlocal.Engine
	m      *model.HostLocal
	config int
}

// open makes engines for what the configuration and the boot are now.
func (r *hostlocalReplay) open() {
	sets, err := hostlocal.Canonical(hostlocalConfigs[r.config])
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range r.e {
		r.e[i], err = hostlocal.New(r.store, hostlocal.Config{
			Network: "net", Sets: hostlocalConfigs[r.config], Boot: fmt.Sprint("boot", r.m.Now), Leases: r.m.Leases,
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.m.Sets = nil
	for _, s := range sets {
		var ranges []model.HostLocalRange
		for _, q := range s {
			ranges = append(ranges, model.HostLocalRange{First: q.First, Last: q.Last, Gateway: q.Gateway, Exclude: q.Exclude})
		}
		r.m.Sets = append(r.m.Sets, ranges)
	}
}

// replayHostLocal runs a trace on both sides and compares every answer, and all that is held after every step.
func replayHostLocal(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	r := &hostlocalReplay{t: t, store: store.NewMemory(), m: model.NewHostLocal()}
	r.config = tr.Op(len(hostlocalConfigs))
	r.m.Leases = tr.Op(2) == 1
	r.open()
	var others []*hostlocal.Engine
	for _, network := range []string{"ne", "neu"} {
		other, err := hostlocal.New(r.store, hostlocal.Config{Network: network, Sets: hostlocalConfigs[0]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Add(context.Background(), hostlocal.Attachment{Container: "x", Interface: "y"}); err != nil {
			t.Fatal(err)
		}
		others = append(others, other)
	}
	for step := 0; tr.More() && step < 300; step++ {
		op := tr.Op(hostlocalOps)
		r.step(op, r.e[tr.Below(2)], tr)
		r.compare(op)
	}
	for _, other := range others {
		s, err := other.Export(context.Background())
		if err != nil || len(s.Holdings) != 1 || fmt.Sprint(s.Holdings[0].Attachment, s.Holdings[0].Addresses) != "x/y [10.0.0.58]" || len(s.Cursors) != 1 {
			t.Fatalf("another network holds %v, %v", s, err)
		}
	}
}

func (r *hostlocalReplay) step(op int, e *hostlocal.Engine, tr *model.Trace) {
	ctx := context.Background()
	who := hostlocal.Attachment{Container: fmt.Sprint("c", tr.Below(6)), Interface: fmt.Sprint("eth", tr.Below(2))}
	key := model.HostLocalKey{who.Container, who.Interface}
	switch op {
	case 0, 1, 2, 3, 4, 5:
		var asked []netip.Addr
		if op >= 4 {
			asked = r.addresses(tr)
		}
		r.add(e, who, asked)
	case 6, 7, 8:
		want := r.m.Del(key)
		got, err := e.Del(ctx, who)
		slices.SortFunc(got, byText)
		if err != nil || !slices.Equal(got, want) {
			r.t.Fatalf("Del(%s) = %v, %v, want %v", who, got, err, want)
		}
	case 9, 10:
		asked := r.addresses(tr)
		want := r.m.Verify(key, asked)
		if got := wordOf(e.Verify(ctx, who, asked...)); got != want {
			r.t.Fatalf("Verify(%s, %v) = %q, want %q", who, asked, got, want)
		}
	case 11:
		want := r.m.Full()
		err := e.Status(ctx)
		var in *hostlocal.SetError
		if want < 0 && err != nil || want >= 0 && (!errors.As(err, &in) || !errors.Is(err, ipalloc.ErrFull) || in.Set != want) {
			r.t.Fatalf("Status() = %v, want full in set %d", err, want)
		}
	case 12:
		r.gc(e, tr)
	case 13:
		r.load(e, who, tr)
	case 14:
		r.config = int(tr.Below(uint64(len(hostlocalConfigs))))
		r.open()
	case 15:
		r.m.Reboot()
		r.open()
	}
}

func byText(a, b netip.Addr) int { return slices.Compare([]byte(a.String()), []byte(b.String())) }

// wordOf turns an error into what the model says of it.
func wordOf(err error) string {
	for word, sentinel := range map[string]error{
		"exists": ipalloc.ErrExists, "full": ipalloc.ErrFull, "occupied": ipalloc.ErrOccupied, "reserved": ipalloc.ErrReserved,
		"unused": ipalloc.ErrOutOfRange, "not found": ipalloc.ErrNotFound, "mismatch": ipalloc.ErrMismatch,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (r *hostlocalReplay) add(e *hostlocal.Engine, who hostlocal.Attachment, asked []netip.Addr) {
	want, set, why := r.m.Add(model.HostLocalKey{who.Container, who.Interface}, asked)
	got, err := e.Add(context.Background(), who, asked...)
	var own *ipalloc.Error
	var in *hostlocal.SetError
	switch {
	case wordOf(err) != why || len(got) != len(want):
		r.t.Fatalf("Add(%s, %v) = %v, %v, want %v, %q", who, asked, got, err, want, why)
	case err != nil && (!errors.As(err, &own) || !errors.As(err, &in) || in.Set != set || own.Owner != who.String()):
		r.t.Fatalf("Add(%s, %v): %v, want it of set %d", who, asked, err, set)
	}
	for i, a := range want {
		s := hostlocalConfigs[r.config][i]
		sets, _ := hostlocal.Canonical([]hostlocal.RangeSet{s})
		q := sets[0][sets[0].RangeOf(a)]
		if (got[i] != hostlocal.Address{Prefix: netip.PrefixFrom(a, q.Subnet.Bits()), Gateway: q.Gateway}) {
			r.t.Fatalf("Add(%s, %v) = %v, want %v", who, asked, got, want)
		}
	}
}

// addresses reads up to three addresses in and around the ranges.
func (r *hostlocalReplay) addresses(tr *model.Trace) (as []netip.Addr) {
	for range tr.Below(4) {
		switch v := tr.Below(24); {
		case v < 12:
			as = append(as, netip.AddrFrom4([4]byte{10, 0, 0, byte(56 + v)}))
		case v < 18:
			as = append(as, netip.AddrFrom4([4]byte{10, 0, 0, byte(250 + v - 12)}))
		default:
			as = append(as, netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(0x3d + v - 18)}))
		}
	}
	return as
}

func (r *hostlocalReplay) gc(e *hostlocal.Engine, tr *model.Trace) {
	var valid []hostlocal.Attachment
	var keys []model.HostLocalKey
	for mask := tr.Below(1 << 12); mask != 0; mask &= mask - 1 {
		bit := 0
		for mask>>bit&1 == 0 {
			bit++
		}
		a := hostlocal.Attachment{Container: fmt.Sprint("c", bit/2), Interface: fmt.Sprint("eth", bit%2)}
		valid = append(valid, a)
		keys = append(keys, model.HostLocalKey{a.Container, a.Interface})
	}
	want, n := r.m.GC(keys), 0
	freed, err := e.GC(context.Background(), hostlocal.GCArgs{Valid: valid})
	for _, h := range freed {
		n += len(h.Addresses)
	}
	if err != nil || n != want {
		r.t.Fatalf("GC(%v) freed %v, %v, want %d", valid, freed, err, want)
	}
}

// load imports a few addresses for an attachment, now and then one without interface, and a cursor.
func (r *hostlocalReplay) load(e *hostlocal.Engine, who hostlocal.Attachment, tr *model.Trace) {
	if tr.Below(2) == 0 {
		who.Interface = ""
	}
	s := hostlocal.State{Holdings: []hostlocal.Holding{{Attachment: who, Addresses: r.addresses(tr)}}}
	bad := 0
	for _, a := range s.Holdings[0].Addresses {
		if !r.m.Import(model.HostLocalKey{who.Container, who.Interface}, a) {
			bad++
		}
	}
	if as := r.addresses(tr); len(as) > 0 {
		set := int(tr.Below(2))
		s.Cursors = map[int]netip.Addr{set: as[0]}
		r.m.Cursors[set] = as[0]
	}
	left, err := e.Import(context.Background(), s)
	if err != nil || len(left) != bad {
		r.t.Fatalf("Import(%v) left out %v, %v, want %d", s, left, err, bad)
	}
}

// compare compares all that is held, and checks what is derived.
func (r *hostlocalReplay) compare(op int) {
	ctx := context.Background()
	if err := r.e[0].Check(ctx); err != nil {
		r.t.Fatalf("after op %d: %v", op, err)
	}
	s, err := r.e[0].Export(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	held := map[netip.Addr]model.HostLocalKey{}
	for _, h := range s.Holdings {
		for _, a := range h.Addresses {
			held[a] = model.HostLocalKey{h.Attachment.Container, h.Attachment.Interface}
		}
	}
	if fmt.Sprint(held) != fmt.Sprint(r.m.Held) || fmt.Sprint(s.Cursors) != fmt.Sprint(r.m.Cursors) {
		r.t.Fatalf("after op %d: held %v after %v, want %v after %v", op, held, s.Cursors, r.m.Held, r.m.Cursors)
	}
}

func randomHostLocalTrace(rng *rand.Rand, n int) []byte {
	data := []byte{byte(rng.UintN(256)), byte(rng.UintN(256))}
	for range n {
		data = model.AppendOp(data, byte(rng.UintN(256)), rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40)
	}
	return data
}

func TestHostLocalAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 50, 300) {
		replayHostLocal(t, randomHostLocalTrace(rand.New(rand.NewPCG(seed, 1)), 100))
	}
}

func FuzzHostLocal(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomHostLocalTrace(rand.New(rand.NewPCG(seed, 2)), 20))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<11 {
			return // the model is slow
		}
		replayHostLocal(t, data)
	})
}
