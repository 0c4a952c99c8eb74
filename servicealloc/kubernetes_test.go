package servicealloc

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func text(xs ...any) string { return fmt.Sprintln(xs...) }

// The number is big-endian, its bit i the i-th usable address, and has no zero bytes in
// front. SA8
func TestExport(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		taken  []string
		data   []byte
	}{
		{"192.168.1.0/24", nil, nil},
		{"192.168.1.0/24", []string{"192.168.1.1", "192.168.1.10"}, []byte{2, 1}},
		{"192.168.1.0/24", []string{"192.168.1.254"}, append([]byte{0x20}, make([]byte, 31)...)},
		{"192.168.1.0/24", []string{"192.168.1.1", "192.168.1.65"}, []byte{1, 0, 0, 0, 0, 0, 0, 0, 1}},
		{"2001:db8::/112", []string{"2001:db8::1", "2001:db8::ffff"}, append(append([]byte{0x40}, make([]byte, 8190)...), 1)},
		{"2001:db8::/48", []string{"2001:db8::2"}, []byte{2}},
		{"2001:db8::/64", []string{"2001:db8::9"}, []byte{1, 0}},
		{"192.168.1.0/31", nil, nil},
	} {
		r := newRangeT(t, tt.prefix)
		for _, a := range tt.taken {
			wantErr(t, r.Allocate(ip(a)), nil)
		}
		got, err := r.Export()
		if err != nil || got.Range != tt.prefix || !bytes.Equal(got.Data, tt.data) {
			t.Errorf("%s: %s %x, %v; want %x", tt.prefix, got.Range, got.Data, err, tt.data)
		}
		again, err := FromRangeAllocation(got)
		if err != nil || !slices.Equal(slices.Collect(again.All()), slices.Collect(r.All())) {
			t.Errorf("%s: %v", tt.prefix, err)
			continue
		}
		check(t, again)
		wantErr(t, r.Import(got), nil)
		check(t, r)
	}
	for _, far := range []string{"2001:db8:0:0:1::", "2001:db8::1000:0", "2001:db8:0:1::", "2001:db8:0:1::1"} {
		r := newRangeT(t, "2001:db8::/48")
		wantErr(t, r.Allocate(ip(far)), nil)
		if _, err := r.Export(); far != "2001:db8::1000:0" || err != nil {
			wantErr(t, err, ErrOutOfRange)
		}
	}
}

// Half full, out and in again. SA8
func TestExportImport(t *testing.T) {
	r := newRangeT(t, "10.0.0.0/16")
	for range 30000 {
		r.AllocateNext()
	}
	a, err := r.Export()
	wantErr(t, err, nil)
	other := newRangeT(t, "10.0.0.0/16")
	other.AllocateNext()
	wantErr(t, other.Import(a), nil)
	check(t, other)
	if x, y := r.Stats(), other.Stats(); x != y {
		t.Error(x, y)
	}
	if !slices.Equal(slices.Collect(r.All()), slices.Collect(other.All())) {
		t.Error("another content")
	}
	wide := newRangeT(t, "fd00::/60")
	wantErr(t, wide.Allocate(ip("fd00:0:0:3::1")), nil)
	wantErr(t, wide.Import(RangeAllocation{"fd00::/60", []byte{0, 5}}), nil)
	if got := slices.Collect(wide.All()); !slices.Equal(got, []netip.Addr{ip("fd00::1"), ip("fd00::3")}) {
		t.Error(got)
	}
	check(t, wide)
}

// What people and attackers write. SA8, X1, X4
func TestImportRefuses(t *testing.T) {
	full := func(n int) []byte { return bytes.Repeat([]byte{0xff}, n) }
	r := newRangeT(t, "10.0.0.0/30")
	wantErr(t, r.Allocate(ip("10.0.0.1")), nil)
	before := snapshotOf(t, r)
	for _, a := range []RangeAllocation{
		{"10.0.0.0/30", []byte{4}}, // bit 2 of 2
		{"10.0.0.0/30", full(2)},
		{"10.0.0.0/30", append([]byte{1}, make([]byte, 100)...)},
		{"10.0.0.0/29", nil}, {"10.0.1.0/30", nil}, {"fd00::/64", nil}, {"::ffff:10.0.0.0/126", nil},
		{"", nil}, {"10.0.0.0", nil}, {"10.0.0.0/33", nil}, {"010.0.0.0/30", nil}, {"fd00::%1/64", nil}, {"30000-32767", nil},
	} {
		wantErr(t, r.Import(a), ErrSnapshot)
		if snapshotOf(t, r) != before {
			t.Fatalf("%v changed something", a)
		}
	}
	for _, a := range []RangeAllocation{{"10.0.0.0/32", []byte{1}}, {"10.0.0.0/30", full(1)}, {"fd00::/126", []byte{8}}, {"x", nil}, {"::ffff:0:0/96", nil}} {
		if r, err := FromRangeAllocation(a); r != nil {
			t.Errorf("%v is let in", a)
		} else {
			wantErr(t, err, ErrSnapshot)
		}
	}
	_, err := FromRangeAllocation(RangeAllocation{"10.0.0.0/24", nil}, StaticSize(255))
	wantErr(t, err, ErrBadOption)
	// Zero bytes in front and host bits are let pass, as written by people.
	got, err := FromRangeAllocation(RangeAllocation{"10.0.0.3/30", []byte{0, 0, 3}})
	if err != nil || got.Prefix() != pfx("10.0.0.0/30") || got.Stats().Dynamic.Used != 2 {
		t.Error(got, err)
	}
	if got, err := FromRangeAllocation(RangeAllocation{"10.0.0.0/32", []byte{0}}); err != nil || got.Prefix().Bits() != 32 {
		t.Error(got, err)
	}
}

// Node ports: Kubernetes keeps one number for all protocols. SA5, SA8
func TestPortAllocation(t *testing.T) {
	p, err := FromPortAllocation(RangeAllocation{"10000-10200", []byte{4, 1}})
	wantErr(t, err, nil)
	for proto := TCP; proto <= SCTP; proto++ {
		if got := slices.Collect(p.All(proto)); !slices.Equal(got, []uint16{10000, 10010}) {
			t.Error(proto, got)
		}
	}
	wantErr(t, p.Allocate(Port{UDP, 10200}), nil)
	check(t, p)
	a, err := p.Export(UDP)
	if err != nil || a.Range != "10000-10200" || len(a.Data) != 26 || a.Data[0] != 1 {
		t.Error(a, err)
	}
	wantErr(t, p.Import(TCP, a), nil)
	if !p.Has(Port{TCP, 10200}) || p.Has(Port{SCTP, 10200}) {
		t.Error("imported to the wrong protocol")
	}
	check(t, p)
	before := snapshotOf(t, p)
	for _, bad := range []RangeAllocation{{"10000-10199", nil}, {"10000-70000", nil}, {"fd00::/64", nil}, {"", nil}, {"10000-10200", append([]byte{2}, make([]byte, 25)...)}} {
		wantErr(t, p.Import(TCP, bad), ErrSnapshot)
	}
	wantErr(t, p.Import(9, a), ErrBadPort)
	_, err = p.Export(0)
	wantErr(t, err, ErrBadPort)
	if snapshotOf(t, p) != before {
		t.Error("something changed")
	}
	for s, want := range map[string]error{"30000-65536": ErrBadPort, "0-10": ErrBadPort, "": ErrBadPort, "1-2": ErrSnapshot} {
		_, err := FromPortAllocation(RangeAllocation{s, []byte{4}})
		wantErr(t, err, want)
	}
}

// Texts say what was asked and what stands in the way. X2
func TestErrorTexts(t *testing.T) {
	r := newRangeT(t, "10.0.0.0/24")
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{r.Allocate(ip("10.1.0.1")), []string{"servicealloc:", "allocate", "10.1.0.1", "10.0.0.0/24"}},
		{errOfPort(NewPorts(PortRange{0, 5})), []string{"servicealloc:", "0-5", "port 0"}},
		{r.Import(RangeAllocation{"10.1.0.0/24", nil}), []string{"import", "10.0.0.0/24", "it is for 10.1.0.0/24"}},
		{newRangesT(t).Drain("x"), []string{"drain", "x", ErrNoRange.Error()}},
	} {
		for _, s := range tt.want {
			if !strings.Contains(tt.err.Error(), s) {
				t.Errorf("%q has no %q", tt.err, s)
			}
		}
	}
	if Kind(9).String() == "" || Op(0).String() != "none" || Op(99).String() != "none" || Protocol(9).String() == "" || Family(9).String() == "" {
		t.Error("a value without a text")
	}
}

func errOfPort(_ *Ports, err error) error { return err }
