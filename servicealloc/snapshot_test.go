package servicealloc

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// marshaler is what every allocator is here.
type marshaler interface {
	MarshalBinary() ([]byte, error)
	Check() error
}

// worlds are allocators with some content, and how each is restored.
func worlds(t testing.TB) map[string]struct {
	m       marshaler
	restore func([]byte, ...Option) (marshaler, error)
} {
	t.Helper()
	r := newRangeT(t, "10.0.0.0/20", Reserve(pfx("10.0.3.0/24")), StaticPrefixes(pfx("10.0.5.0/28")), NeverSpill())
	for range 700 {
		r.AllocateNext()
	}
	wide := newRangeT(t, "fd00::/48", StaticSize(7))
	for range 5 {
		wide.AllocateNext()
	}
	wantErr(t, wide.Allocate(ip("fd00:0:0:9::1")), nil)
	lowest := newRangeT(t, "fd00::/120", LowestFirst())
	lowest.AllocateNext()
	empty := newRangeT(t, "10.0.0.0/31")
	p := newPortsT(t, 30000, 32767, ReservePorts(PortRange{31000, 31009}), StaticPorts(PortRange{32000, 32001}))
	for range 50 {
		p.AllocateNext(TCP)
		p.AllocateNext(SCTP)
	}
	rs := newRangesT(t)
	wantErr(t, rs.Add("a", pfx("10.0.0.0/24"), pfx("fd00::/64")), nil)
	wantErr(t, rs.Add("b", pfx("10.0.0.0/16"), pfx("fd00::/48")), nil)
	wantErr(t, rs.Drain("a"), nil)
	for range 60 {
		rs.AllocateNext(IPv4)
		rs.AllocateNext(IPv6)
	}
	g := newRegistryT(t, "10.0.0.0/24", "fd00::/48")
	for i := range 20 {
		g.Allocate(string(rune('a'+i)), Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}, {UDP, 0}}})
	}
	g.Release("c")
	wantErr(t, g.AddRange("later", pfx("10.1.0.0/24")), nil)
	wantErr(t, g.DrainRange("later"), nil)

	one := func(b []byte, o ...Option) (marshaler, error) { m, err := Restore(b, o...); return m, err }
	ports := func(b []byte, o ...Option) (marshaler, error) { m, err := RestorePorts(b, o...); return m, err }
	many := func(b []byte, o ...Option) (marshaler, error) { m, err := RestoreRanges(b, o...); return m, err }
	owners := func(b []byte, o ...Option) (marshaler, error) { m, err := RestoreRegistry(b, o...); return m, err }
	type world = struct {
		m       marshaler
		restore func([]byte, ...Option) (marshaler, error)
	}
	return map[string]world{"range": {r, one}, "wide": {wide, one}, "lowest": {lowest, one}, "empty": {empty, one},
		"ports": {p, ports}, "ranges": {rs, many}, "registry": {g, owners}}
}

// A restored allocator is the same, to the byte, and goes on as the first one does. X3, X5
func TestRestoreGoesOn(t *testing.T) {
	for name, w := range worlds(t) {
		data := snapshotOf(t, w.m)
		again, err := w.restore([]byte(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check(t, again)
		if snapshotOf(t, again) != data {
			t.Errorf("%s: another snapshot", name)
		}
		for range 40 {
			if x, y := nextOf(w.m), nextOf(again); x != y {
				t.Fatalf("%s: went on with %s, the restored one with %s", name, x, y)
			}
		}
		check(t, again, w.m)
		if snapshotOf(t, again) != snapshotOf(t, w.m) {
			t.Errorf("%s: drifted apart", name)
		}
		// Appending keeps what is there.
		if app, ok := w.m.(interface{ AppendBinary([]byte) ([]byte, error) }); !ok {
			t.Errorf("%s: no AppendBinary", name)
		} else if got, err := app.AppendBinary([]byte("head")); err != nil || string(got) != "head"+snapshotOf(t, w.m) {
			t.Errorf("%s: AppendBinary", name)
		}
	}
}

// nextOf makes one allocation and says what came of it.
func nextOf(m marshaler) string {
	switch m := m.(type) {
	case *Range:
		a, s, err := m.AllocateNext()
		return text(a, s, err)
	case *Ports:
		n, s, err := m.AllocateNext(SCTP)
		return text(n, s, err)
	case *Ranges:
		a, s, err := m.AllocateNext(IPv4)
		b, s6, err6 := m.AllocateNext(IPv6)
		return text(a, s, err) + text(b, s6, err6)
	case *Registry:
		g, err := m.Allocate("new"+text(m.Len()), Request{Addrs: anyBoth, Ports: []Port{{TCP, 0}}})
		return text(g, err)
	}
	return ""
}

// Bytes of anything else: an error, or an allocator that passes its check. X5
func TestRestoreHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for name, w := range worlds(t) {
		data := []byte(snapshotOf(t, w.m))
		try := func(b []byte, what string) {
			m, err := w.restore(b)
			if err != nil {
				if !errors.Is(err, ErrSnapshot) {
					t.Fatalf("%s, %s: %v", name, what, err)
				}
				return
			}
			if err := m.Check(); err != nil {
				t.Fatalf("%s, %s: restored, then %v", name, what, err)
			}
			nextOf(m)
			if err := m.Check(); err != nil {
				t.Fatalf("%s, %s: after an allocation: %v", name, what, err)
			}
		}
		for n := range len(data) {
			if _, err := w.restore(data[:n]); !errors.Is(err, ErrSnapshot) {
				t.Fatalf("%s: the first %d bytes: %v", name, n, err)
			}
		}
		for range 400 {
			b := slices.Clone(data)
			for range 1 + rng.IntN(3) {
				b[rng.IntN(len(b))] ^= byte(1 << rng.IntN(8))
			}
			if _, err := w.restore(b); err == nil && string(b) != string(data) {
				t.Fatalf("%s: a flipped bit passes", name)
			}
			try(resealed(b), "flipped and sealed")
		}
		longer := resealed(append(slices.Clone(data[:len(data)-4]), 0, 0, 0, 0, 0)) // one byte, and room for the checksum
		if _, err := w.restore(longer); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("%s: a byte after the end: %v", name, err)
		}
		for other, o := range worlds(t) {
			if _, err := w.restore([]byte(snapshotOf(t, o.m))); err == nil && data[len(snapMagic)] != snapshotOf(t, o.m)[len(snapMagic)] {
				t.Errorf("%s: takes a snapshot of %s", name, other)
			}
		}
	}
}

// resealed makes the checksum right again, so that the body is looked at.
func resealed(b []byte) []byte {
	n := len(b) - 4
	return binary.BigEndian.AppendUint32(b[:n:n], crc32.Checksum(b[:n], castagnoli))
}

// Snapshots that contradict themselves though every part is well-formed. X5
func TestRestoreContradictions(t *testing.T) {
	reg := newRegistryT(t, "10.0.0.0/24", "fd00::/64")
	for what, grants := range map[string][]Grant{
		"address twice":     {{"a", 1, []netip.Addr{ip("10.0.0.1")}, nil, false}, {"b", 2, []netip.Addr{ip("10.0.0.1")}, nil, false}},
		"port twice":        {{"a", 1, nil, []Port{{TCP, 30000}}, false}, {"b", 2, nil, []Port{{TCP, 30000}}, false}},
		"owner twice":       {{"a", 1, nil, nil, false}, {"a", 2, nil, nil, false}},
		"owner out of turn": {{"b", 1, nil, nil, false}, {"a", 2, nil, nil, false}},
		"no owner":          {{"", 1, nil, nil, false}},
		"generation twice":  {{"a", 1, nil, nil, false}, {"b", 1, nil, nil, false}},
		"generation ahead":  {{"a", 9, nil, nil, false}},
		"no generation":     {{"a", 0, nil, nil, false}},
		"open address":      {{"a", 1, anyBoth, nil, false}},
		"open port":         {{"a", 1, nil, []Port{{TCP, 0}}, false}},
		"network address":   {{"a", 1, []netip.Addr{ip("10.0.0.0")}, nil, false}},
		"outside":           {{"a", 1, []netip.Addr{ip("10.0.1.1")}, nil, false}},
		"port outside":      {{"a", 1, nil, []Port{{TCP, 29999}}, false}},
		"two of a family":   {{"a", 1, []netip.Addr{ip("10.0.0.1"), ip("10.0.0.2")}, nil, false}},
	} {
		e := newEncoder(nil, kindRegistry)
		e.ranges(reg.ranges)
		e.portRanges([]PortRange{reg.ports.r})
		for i := range reg.ports.pick {
			e.source(nil)
			e.uint(reg.ports.pick[i].next)
		}
		e.uint(2) // the generation given last
		e.uint(uint64(len(grants)))
		for i := range grants {
			e.grant(&grants[i])
		}
		if _, err := RestoreRegistry(e.seal()); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// An address that no range has usable.
	rs := newRangesT(t)
	wantErr(t, rs.Add("a", pfx("10.0.0.0/24")), nil)
	rs.core.roots[0][0].take(u128(0, 0)) // the network address
	if _, err := RestoreRanges([]byte(snapshotOf(t, rs))); !errors.Is(err, ErrSnapshot) {
		t.Error(err)
	}
	if rs.Check() == nil {
		t.Error("Check lets a held network address pass")
	}
}

// Only what is not in the snapshot may be given as an option. X3, X5
func TestRestoreOptions(t *testing.T) {
	for name, w := range worlds(t) {
		data := []byte(snapshotOf(t, w.m))
		for _, o := range []Option{LowestFirst(), NeverSpill(), StaticSize(1), PointToPoint(), Reserve(pfx("10.0.0.0/30")),
			StaticPrefixes(pfx("10.0.0.0/30")), ReservePorts(PortRange{1, 1}), StaticPorts(PortRange{1, 1}), Random(nil)} {
			if _, err := w.restore(data, o); !errors.Is(err, ErrBadOption) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := w.restore(data, Random(&fixed{}))
		if name == "lowest" {
			if !errors.Is(err, ErrBadOption) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		changes := 0
		m, err := w.restore(data, OnChange(func(Change) { changes++ }))
		if err != nil {
			t.Fatal(err)
		}
		if nextOf(m); changes == 0 && name != "empty" {
			t.Errorf("%s: the hook saw nothing", name)
		}
	}
}
