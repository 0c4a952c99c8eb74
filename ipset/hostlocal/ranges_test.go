package hostlocal

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// parseRange reads "subnet start end gateway excluded..."; "-" and what is missing is zero.
func parseRange(text string) (r Range) {
	f := append(strings.Fields(text), "-", "-", "-")
	bare, bits, _ := strings.Cut(f[0], "/")
	n := 0
	for _, c := range bits {
		n = n*10 + int(c-'0')
	}
	r.Subnet = netip.PrefixFrom(netip.MustParseAddr(bare), n)
	for i, at := range []*netip.Addr{&r.First, &r.Last, &r.Gateway} {
		if f[i+1] != "-" {
			*at = netip.MustParseAddr(f[i+1])
		}
	}
	for _, p := range f[4:] {
		if p != "-" {
			r.Exclude = append(r.Exclude, netip.MustParsePrefix(p))
		}
	}
	return r
}

func TestCanonicalRange(t *testing.T) {
	for _, c := range []struct {
		in   string
		want any
	}{
		{"192.0.2.0/24", "192.0.2.0/24 192.0.2.1 192.0.2.254 192.0.2.1"},
		{"192.0.2.0/25", "192.0.2.0/25 192.0.2.1 192.0.2.126 192.0.2.1"},
		{"192.0.2.0/30", "192.0.2.0/30 192.0.2.1 192.0.2.2 192.0.2.1"},
		{"0.0.0.0/0", "0.0.0.0/0 0.0.0.1 255.255.255.254 0.0.0.1"},
		{"128.0.0.0/1", "128.0.0.0/1 128.0.0.1 255.255.255.254 128.0.0.1"},
		{"2001:db8:1::/64", "2001:db8:1::/64 2001:db8:1::1 2001:db8:1::ffff:ffff:ffff:ffff 2001:db8:1::1"},
		{"8000::/1", "8000::/1 8000::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 8000::1"},
		{"fd00::/126", "fd00::/126 fd00::1 fd00::3 fd00::1"},
		{"192.0.2.0/24 192.0.2.40 192.0.2.50 192.0.2.254", "192.0.2.0/24 192.0.2.40 192.0.2.50 192.0.2.254"},
		{"192.0.2.0/24 192.0.2.0 192.0.2.255 203.0.113.1", "192.0.2.0/24 192.0.2.0 192.0.2.255 203.0.113.1"},
		{"192.0.2.0/24 - - fd00::1", "192.0.2.0/24 192.0.2.1 192.0.2.254 fd00::1"},
		{"192.0.2.0/24 192.0.2.7 192.0.2.7", "192.0.2.0/24 192.0.2.7 192.0.2.7 192.0.2.1"},
		{"192.0.2.0/24 - - - 192.0.2.64/26 192.0.2.7/32", "192.0.2.0/24 192.0.2.1 192.0.2.254 192.0.2.1 192.0.2.64/26 192.0.2.7/32"},

		{"192.0.2.0/24 - - - 192.0.3.0/25", ipalloc.ErrInvalid},
		{"192.0.2.0/24 - - - 192.0.2.0/23", ipalloc.ErrInvalid},
		{"192.0.2.0/24 - - - fd00::/64", ipalloc.ErrInvalid},
		{"192.0.2.12/24", ipalloc.ErrInvalid},
		{"2001:db8:1::24:19ff:fee1:c44a/64", ipalloc.ErrInvalid},
		{"2001:db8:24:19ff::/63", ipalloc.ErrInvalid},
		{"192.168.127.0/23", ipalloc.ErrInvalid},
		{"::ffff:10.0.0.0/104", ipalloc.ErrInvalid},
		{"::/64", ipalloc.ErrInvalid}, // holds the IPv4-mapped addresses
		{"192.0.2.0/31", ipalloc.ErrInvalid},
		{"192.0.2.0/32", ipalloc.ErrInvalid},
		{"192.0.2.3/32", ipalloc.ErrInvalid},
		{"fd00::/127", ipalloc.ErrInvalid},
		{"fd00::/128", ipalloc.ErrInvalid},
		{"::ffff:10.0.0.0/128", ipalloc.ErrInvalid},
		{"192.0.2.0/24 192.0.3.0", ipalloc.ErrInvalid},
		{"192.0.2.0/24 - 192.0.4.0", ipalloc.ErrInvalid},
		{"192.0.2.0/24 192.0.2.50 192.0.2.40", ipalloc.ErrInvalid},
		{"192.0.2.0/24 - 192.0.2.0", ipalloc.ErrInvalid},
		{"192.0.2.0/24 192.0.2.255", ipalloc.ErrInvalid},
		{"192.0.2.0/24 fd00::1", ipalloc.ErrInvalid},
		{"192.0.2.0/24 - fd00::1", ipalloc.ErrInvalid},
		{"192.0.2.0/24 ::ffff:192.0.2.7", ipalloc.ErrInvalid},
		{"192.0.2.0/24 - - ::ffff:192.0.2.7", ipalloc.ErrInvalid},
		{"fe80::/64 fe80::1%eth0", ipalloc.ErrInvalid},
	} {
		got, err := Canonical([]RangeSet{{parseRange(c.in)}})
		if sentinel, ok := c.want.(error); ok {
			var in *SetError
			if !errors.Is(err, sentinel) || !errors.As(err, &in) || in.Set != 0 || in.Range != 0 || got != nil || !strings.HasPrefix(own(err).Field, "Sets[0][0].") {
				t.Errorf("%s: %v, %v, want %v", c.in, got, err, sentinel)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got[0][0], parseRange(c.want.(string))) {
			t.Errorf("%s: %v, %v, want %s", c.in, got, err, c.want)
		}
	}
	if _, err := Canonical([]RangeSet{{{}}}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}

// TestBadRangeNames: an end before the start is said of the one that the caller named.
func TestBadRangeNames(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.0/24 192.0.2.50 192.0.2.40": "192.0.2.50",
		"192.0.2.0/24 192.0.2.1 192.0.2.0":   "192.0.2.1",
		"192.0.2.0/24 192.0.2.1 192.0.1.0":   "192.0.2.1",
		"192.0.2.0/24 - 192.0.2.0":           "192.0.2.0",
		"192.0.2.0/24 192.0.3.1 192.0.4.0":   "192.0.3.1",
	} {
		if _, err := Canonical([]RangeSet{{parseRange(in)}}); err == nil || own(err).Addr.String() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestContains(t *testing.T) {
	sets, err := Canonical([]RangeSet{
		{parseRange("192.0.2.0/24 192.0.2.40 192.0.2.50")}, {parseRange("2001:db8:1::/64 2001:db8:1::40 2001:db8:1::50")},
		subnets("192.168.0.0/24", "172.16.1.0/24"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  int
		addr string
		want int
	}{
		{0, "192.0.3.0", -1}, {0, "192.0.2.39", -1}, {0, "192.0.2.40", 0}, {0, "192.0.2.50", 0}, {0, "192.0.2.51", -1}, {0, "2001:db8:1::40", -1},
		{1, "2001:db8:2::", -1}, {1, "2001:db8:1::39", -1}, {1, "2001:db8:1::40", 0}, {1, "2001:db8:1::50", 0}, {1, "2001:db8:1::51", -1},
		{2, "192.168.0.55", 0}, {2, "172.16.1.254", 1}, {2, "192.168.99.99", -1}, {2, "::ffff:192.168.0.55", -1},
	} {
		if got := sets[c.set].RangeOf(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("set %d, %s: %d, want %d", c.set, c.addr, got, c.want)
		}
	}
	if got, want := sets[2].String(), "192.168.0.1-192.168.0.254,172.16.1.1-172.16.1.254"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if sets[2].RangeOf(netip.Addr{}) != -1 {
		t.Error("the zero address is in a set")
	}
}

func TestCanonicalSets(t *testing.T) {
	one := func(text string) RangeSet { return RangeSet{parseRange(text)} }
	for _, c := range []struct {
		name              string
		sets              []RangeSet
		want              error
		set, range_, with int
	}{
		{"none", nil, nil, 0, 0, 0},
		{"apart", []RangeSet{one("10.0.0.0/24"), one("10.0.1.0/24")}, nil, 0, 0, 0},
		{"bits alike, families not", []RangeSet{one("0.0.0.0/24"), one("100::/24")}, nil, 0, 0, 0},
		{"identical", []RangeSet{one("10.0.0.0/24"), one("10.0.0.0/24")}, ipalloc.ErrExists, 0, -1, 1},
		{"one in the other", []RangeSet{one("10.9.0.0/24"), one("10.0.0.0/20"), one("10.0.1.0/24")}, ipalloc.ErrExists, 1, -1, 2},
		{"halves", []RangeSet{one("10.0.0.0/24 - 10.0.0.127"), one("10.0.0.0/24 10.0.0.128")}, nil, 0, 0, 0},
		{"halves that meet", []RangeSet{one("10.0.0.0/24 - 10.0.0.127"), one("10.0.0.0/24 10.0.0.127")}, ipalloc.ErrExists, 0, -1, 1},
		{"in one set", []RangeSet{one("10.9.0.0/24"), append(one("192.168.0.0/20"), one("192.168.2.0/24")...)}, ipalloc.ErrExists, 1, 0, 1},
		{"families", []RangeSet{append(one("10.1.0.0/22"), one("2001:db8:5::/64")...)}, ipalloc.ErrInvalid, 0, 1, -1},
		{"empty", []RangeSet{one("10.1.0.0/22"), {}}, ipalloc.ErrInvalid, 1, -1, -1},
		{"first fault first", []RangeSet{append(one("10.0.0.0/24"), one("10.0.0.0/24")...), {}}, ipalloc.ErrExists, 0, 0, 1},
	} {
		var in *SetError
		got, err := Canonical(c.sets)
		switch {
		case !errors.Is(err, c.want):
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		case err == nil && len(got) != len(c.sets):
			t.Errorf("%s: %v", c.name, got)
		case err != nil && (!errors.As(err, &in) || in.Set != c.set || in.Range != c.range_ || in.Other != c.with):
			t.Errorf("%s: %+v", c.name, in)
		}
	}
	_, err := Canonical([]RangeSet{one("10.9.0.0/24"), one("10.0.0.0/20"), one("10.8.0.0/24"), one("10.0.1.0/24")})
	if e := own(err); e == nil || e.Field != "Sets[1]" || e.Reason != "overlaps Sets[3]" {
		t.Errorf("%+v", e)
	}
	for text, want := range map[string]string{"fd00::/127": "too small to allocate from", "fd00::/64": "mixed address families"} {
		_, err := Canonical([]RangeSet{append(one("10.0.0.0/24"), one(text)...)})
		if e := own(err); e == nil || e.Reason != want {
			t.Errorf("%s beside a range of IPv4: %v, want %q", text, err, want)
		}
	}
	in := []RangeSet{one("10.0.0.0/24")}
	if _, err := Canonical(in); err != nil || in[0][0].First.IsValid() {
		t.Error("the caller's ranges were changed")
	}
}

func TestNewRefuses(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	for _, c := range []struct {
		store store.Store
		c     Config
		want  error
	}{
		{nil, Config{Network: "n"}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{Network: "a\x00b"}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{Network: long}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{Network: "n", Leases: true}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{Network: "n", Boot: long}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{Network: "n", Sets: []RangeSet{{}}}, ipalloc.ErrInvalid},
		{store.NewMemory(), Config{Network: "n"}, nil},
	} {
		if e, err := New(c.store, c.c); !errors.Is(err, c.want) || (e == nil) != (err != nil) {
			t.Errorf("New(%+v): %v, want %v", c.c, err, c.want)
		}
	}
	w := newWorld(t, subnets("10.0.0.0/24"))
	for _, who := range []Attachment{{}, {"", "eth0"}, {"c", ""}, {"c\x00", "eth0"}, {"c", "e\x00"}, {long, "eth0"}, {"c", long}} {
		w.add(who, nil, ipalloc.ErrInvalid)
		if _, err := w.Del(ctx, who); !errors.Is(err, ipalloc.ErrInvalid) && who != (Attachment{"c", ""}) {
			t.Errorf("Del(%q): %v", who, err)
		}
	}
}
