package servicealloc

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// marshaler is what every allocator is here.
type marshaler interface {
	MarshalBinary() ([]byte, error)
	Check() error
}

type world struct {
	m       marshaler
	restore func([]byte, ...Option) (marshaler, error)
	opts    []Option
}

// worlds are allocators with some content, and how each is restored.
func worlds(t testing.TB) map[string]world {
	t.Helper()
	static := []Option{StaticBand(-1, pfx("10.0.5.0/28")), NeverSpill()}
	r := newRangeT(t, "10.0.0.0/20", static...)
	for range 700 {
		r.AllocateNext()
	}
	lowest := newRangeT(t, "fd00::/120", LowestFirst())
	lowest.AllocateNext()
	each := PortRange{First: 30000, Last: 32767, PerProtocol: true}
	p := newPortsT(t, 30000, 32767)
	for range 50 {
		p.AllocateNext()
	}
	g := newRegistryT(t, "10.0.0.0/24 fd00::/64")
	for i := range 20 {
		g.Allocate(string(rune('a'+i)), Request{Addrs: anyBoth, Ports: []Port{{}, {UDP, 0}}})
	}
	g.Release("c", 0)
	wantErr(t, g.SetRange(draining(rangeOf("later", "10.1.0.0/24"))), nil)
	wantErr(t, g.SetRange(RangeInfo{Name: "kept", Prefixes: rangeOf("", "10.0.0.128/25").Prefixes, Ports: []PortRange{{First: 30050, Last: 30060}}, Reserved: true}), nil)
	first := must(g.Allocate("first", Request{Addrs: anyBoth, Ports: []Port{{}}}))
	g.Load([]Grant{{Owner: "second", Addrs: first.Addrs}, {Owner: "third", Addrs: first.Addrs, Ports: first.Ports}, {Owner: "", Addrs: []netip.Addr{ip("192.0.2.1")}, Ports: []Port{{"", 9}}}})
	tx, _, err := g.Begin("b", Request{Addrs: anyBoth[:1]})
	wantErr(t, err, nil)
	t.Cleanup(func() { _ = tx.Rollback() })

	apart := must(NewRegistry(each))
	wantErr(t, apart.SetRange(rangeOf("", "10.0.0.0/24 fd00::/64")), nil)
	for i := range 20 {
		apart.Allocate(string(rune('a'+i)), Request{Ports: []Port{{}, {UDP, 0}}})
	}
	one := func(p string, own ...Option) func([]byte, ...Option) (marshaler, error) {
		return func(b []byte, o ...Option) (marshaler, error) {
			return NewRange(pfx(p), append(append(slices.Clone(own), Restore(b)), o...)...)
		}
	}
	return map[string]world{
		"range":  {r, one("10.0.0.0/20", static...), static},
		"lowest": {lowest, one("fd00::/120", LowestFirst()), nil},
		"empty":  {newRangeT(t, "10.0.0.0/31"), one("10.0.0.0/31"), nil},
		"ports": {p, func(b []byte, o ...Option) (marshaler, error) {
			return NewPorts(PortRange{First: 30000, Last: 32767}, append(o, Restore(b))...)
		}, nil},
		"ports apart": {apart, func(b []byte, o ...Option) (marshaler, error) { return NewRegistry(each, append(o, Restore(b))...) }, nil},
		"registry": {g, func(b []byte, o ...Option) (marshaler, error) {
			return NewRegistry(testPorts, append(o, Restore(b))...)
		}, nil},
	}
}

// nextOf makes one allocation and says what came of it.
func nextOf(m marshaler) string {
	switch m := m.(type) {
	case *Range:
		return fmt.Sprintln(m.AllocateNext())
	case *Ports:
		return fmt.Sprintln(m.AllocateNext())
	case *Registry:
		return fmt.Sprintln(m.Allocate(fmt.Sprint("new", len(heldBy(m))), Request{Addrs: anyBoth, Ports: []Port{{}}}))
	}
	return ""
}

// Bytes of anything else: an error, or an allocator that passes its check. Behind a right
// checksum every cut and every flipped byte is tried.
func TestRestoreHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for name, w := range worlds(t) {
		data := []byte(stateOf(t, w.m))
		body := data[:len(data)-4]
		try := func(b []byte, what string) {
			t.Helper()
			m, err := w.restore(b)
			if err != nil {
				if !errors.Is(err, ipalloc.ErrCorrupt) && !errors.Is(err, ipalloc.ErrMismatch) && !errors.Is(err, ipalloc.ErrVersion) {
					t.Fatalf("%s, %s: %v", name, what, err)
				}
				wantErr(t, err, err)
				return
			}
			if stateOf(t, m) != string(b) {
				t.Fatalf("%s, %s: restored, and another snapshot now", name, what)
			}
			check(t, m)
			nextOf(m)
			check(t, m)
		}
		for n := range data {
			if _, err := w.restore(data[:n]); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatalf("%s: the first %d bytes: %v", name, n, err)
			}
		}
		step := 1
		if testing.Short() {
			step = 7
		}
		for n := 0; n < len(body); n += step {
			if _, err := w.restore(wire.Seal(slices.Clone(body[:n]), 0)); err == nil {
				t.Fatalf("%s: the first %d bytes, sealed, pass", name, n)
			}
			b := slices.Clone(body)
			b[n] ^= byte(1 << rng.IntN(8))
			try(wire.Seal(b, 0), fmt.Sprint("flipped at ", n))
		}
		if _, err := w.restore(wire.Seal(append(slices.Clone(body), 0), 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Fatalf("%s: a byte after the end: %v", name, err)
		}
	}
}

// A forged state of the random generator is refused.
func TestRestoreForgedGenerator(t *testing.T) {
	for name, w := range worlds(t) {
		data := []byte(stateOf(t, w.m))
		at := slices.Index(data, 'p')
		for ; string(data[at:at+4]) != "pcg:"; at++ {
		}
		for i := range 4 {
			b := slices.Clone(data[:len(data)-4])
			b[at+i] ^= 1
			if _, err := w.restore(wire.Seal(b, 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Owners and ranges that are not in ascending order, or twice there, are refused.
func TestRestoreDisorder(t *testing.T) {
	r := newRegistryT(t, "")
	for i, name := range []string{"a", "b"} {
		wantErr(t, r.SetRange(rangeOf("range-"+name, fmt.Sprintf("10.0.%d.0/24", i))), nil)
		must(r.Allocate("owner-"+name, Request{Addrs: []netip.Addr{ip(fmt.Sprintf("10.0.%d.1", i))}}))
	}
	data := []byte(stateOf(t, r))
	for _, was := range []string{"range-a", "owner-a"} {
		for _, is := range []string{was, was[:6] + "b", was[:6] + "c"} {
			b := bytes.Replace(data[:len(data)-4], []byte(was), []byte(is), 1)
			_, err := NewRegistry(testPorts, Restore(wire.Seal(b, 0)))
			if is == was {
				wantErr(t, err, nil)
			} else if !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("%s in place of %s: %v", is, was, err)
			}
		}
	}
}

// A snapshot of something else, of other options, or of a newer program is a mismatch;
// options that are not part of a snapshot may differ.
func TestRestoreMismatch(t *testing.T) {
	all := worlds(t)
	for name, w := range all {
		data := []byte(stateOf(t, w.m))
		for other, o := range all {
			if _, err := o.restore(data); other != name && !errors.Is(err, ipalloc.ErrMismatch) && !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("%s as %s: %v", name, other, err)
			}
		}
		newer := slices.Clone(data[:len(data)-4])
		newer[slices.Index(newer, 1)] = 9 // the version is the first byte that is 1
		if _, err := w.restore(wire.Seal(newer, 0)); !errors.Is(err, ipalloc.ErrVersion) {
			t.Errorf("%s, newer: %v", name, err)
		}
		changes := 0
		m, err := w.restore(data, OnChange(func(Change) { changes++ }))
		if wantErr(t, err, nil); nextOf(m) != "" && changes == 0 && name != "empty" {
			t.Errorf("%s: the receiver saw nothing", name)
		}
	}
	data := []byte(stateOf(t, all["range"].m))
	for _, opts := range [][]Option{nil, {NeverSpill()}, {StaticBand(-1, pfx("10.0.5.0/28"))}, {StaticBand(4, pfx("10.0.5.0/28")), NeverSpill()}} {
		_, err := NewRange(pfx("10.0.0.0/20"), append(opts, Restore(data))...)
		wantErr(t, err, ipalloc.ErrMismatch)
	}
	_, err := NewRange(pfx("10.0.0.0/21"), append(all["range"].opts, Restore(data))...)
	wantErr(t, err, ipalloc.ErrMismatch)
	_, err = NewRegistry(PortRange{}, Restore([]byte(stateOf(t, all["registry"].m))))
	wantErr(t, err, ipalloc.ErrMismatch)
}
