package servicealloc

import (
	"errors"
	"net/netip"
	"testing"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }

func newRangeT(t testing.TB, p string, opts ...Option) *Range {
	t.Helper()
	r, err := New(pfx(p), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newPortsT(t testing.TB, first, last uint16, opts ...Option) *Ports {
	t.Helper()
	p, err := NewPorts(PortRange{first, last}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newRangesT(t testing.TB, opts ...Option) *Ranges {
	t.Helper()
	r, err := NewRanges(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type checker interface{ Check() error }

func check(t testing.TB, cs ...checker) {
	t.Helper()
	for _, c := range cs {
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantErr checks the sentinel and that it comes in an *Error, unless it is a bare
// ErrFull.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	if e := (*Error)(nil); err != nil && err != ErrFull && !errors.As(err, &e) {
		t.Fatalf("%T is no *Error", err)
	}
}

// A fixed source gives what a test says.
type fixed struct{ u uint64 }

func (f *fixed) Uint64() uint64 { return f.u }

// snapshotOf is the state of an allocator as bytes, to see that nothing has changed.
func snapshotOf(t testing.TB, m interface{ MarshalBinary() ([]byte, error) }) string {
	t.Helper()
	data, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
