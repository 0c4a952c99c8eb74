package hostlocal

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestGoldenRecords: the bytes of each record. Whoever changes one changes its version too.
func TestGoldenRecords(t *testing.T) {
	clock(t, 1_000_000_000)
	added := string(binary.AppendVarint(nil, 1_000_000_000))
	w := newWorld(t)
	w.open(Config{Network: "net", Scope: "n1", Sets: []RangeSet{subnets("10.0.0.0/29"), subnets("fd00::/126")}, Boot: "b", Keys: true})
	if _, err := w.Add(ctx, Attachment{"cont", "eth0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddKey(ctx, "vm", eth0("c")); err != nil {
		t.Fatal(err)
	}
	recs, _, err := w.store.List(ctx, store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	v6 := func(last string) string { return "\xfd" + strings.Repeat("\x00", 14) + last }
	want := []store.Record{
		{Key: "a4\x0a\x00\x00\x02", Value: "\x01\x04conteth0"},
		{Key: "a4\x0a\x00\x00\x03", Value: "\x01\x06key/vmeth0"},
		{Key: "a6" + v6("\x02"), Value: "\x01\x04conteth0"},
		{Key: "a6" + v6("\x03"), Value: "\x01\x06key/vmeth0"},
		{Key: "c\x014\x0a\x00\x00\x01", Value: "\x014\x0a\x00\x00\x03"},
		{Key: "c\x016" + v6("\x01"), Value: "\x016" + v6("\x03")},
		{Key: "hn1", Value: "\x01\x00\x00\x00b"},
		{Key: "p4\x00\x00\x28\x00\x00", Value: "\x01\x00\x00\x00\x00\x00\x00\x00\x0c"},
		{Key: "p6\x00\x03\xf4" + strings.Repeat("\x00", 14), Value: "\x01\x00\x00\x00\x00\x00\x00\x00\x0c"},
		{Key: "tcont\x00eth0", Value: "\x01\x00" + added + "\x02n1\x00\x024\x0a\x00\x00\x026" + v6("\x02")},
		{Key: "tkey/vm\x00eth0", Value: "\x01\x00" + added + "\x02n1\x01\x01c\x04eth0\x024\x0a\x00\x00\x036" + v6("\x03")},
		{Key: "uc\x00eth0", Value: "\x01\x01vm"},
	}
	for i, r := range recs {
		if i >= len(want) || r.Key != "Lnet\x00"+want[i].Key || r.Value != want[i].Value {
			t.Errorf("record %d: %q is %q", i, r.Key, r.Value)
		}
	}
	if len(recs) != len(want) {
		t.Errorf("%d records, want %d", len(recs), len(want))
	}
	// Another version is refused, not misread.
	for _, r := range recs {
		for version, want := range map[string]error{"\x00": ipalloc.ErrVersion, "\x02": ipalloc.ErrVersion} {
			v := version + r.Value[1:]
			var err error
			switch kind, _ := w.split(r.Key); kind {
			case kindAddress:
				_, err = decode[Attachment](r.Key, v)
			case kindCursor:
				_, err = decode[place](r.Key, v)
			case kindHeader:
				_, err = decode[header](r.Key, v)
			case kindPage:
				_, err = decode[word](r.Key, v)
			case kindAttachment:
				_, err = decode[holding](r.Key, v)
			case kindUse:
				_, err = decode[use](r.Key, v)
			}
			if !errors.Is(err, want) {
				t.Errorf("%q of version %q: %v", r.Key, version, err)
			}
		}
	}
}

// clock sets what the time is in a test, and returns where to change it.
func clock(t *testing.T, at int64) *int64 {
	was := systemTime
	systemTime = func() time.Time { return time.Unix(0, at) }
	t.Cleanup(func() { systemTime = was })
	return &at
}

// TestLongestNames: what is taken at the bound of its length is read again by another engine.
func TestLongestNames(t *testing.T) {
	long := strings.Repeat("n", maxName)
	w := newWorld(t)
	c := Config{Network: long, Scope: long, Sets: []RangeSet{subnets("10.0.0.0/29")}, Boot: long}
	w.open(c)
	w.add(Attachment{long, long}, nil, "10.0.0.2")
	w.open(c)
	w.add(eth0("b"), nil, "10.0.0.3")
	w.check()
	w.del(Attachment{long, long}, "10.0.0.2")
	for _, set := range []func(*Config){
		func(c *Config) { c.Network += "n" }, func(c *Config) { c.Scope += "n" }, func(c *Config) { c.Boot += "n" },
	} {
		longer := c
		set(&longer)
		if _, err := New(w.store, longer); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Error(err)
		}
	}
}

// TestFreedOnce: what a GC released is listed once, also when another engine comes between.
func TestFreedOnce(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/24"))
	w.add(eth0("a"), nil, "10.0.0.2")
	w.add(eth0("b"), nil, "10.0.0.3")
	db := &rival{Store: w.store, times: 1, first: func() { w.del(eth0("b"), "10.0.0.3") }}
	e, err := New(db, Config{Network: "net"})
	if err != nil {
		t.Fatal(err)
	}
	freed, err := e.GC(ctx, GCArgs{})
	if err != nil || len(freed) != 1 || freed[0].Attachment != eth0("a") {
		t.Fatal(freed, err)
	}
}

// TestEndOfAnotherFamily: the error names the field.
func TestEndOfAnotherFamily(t *testing.T) {
	r := Range{Subnet: netip.MustParsePrefix("fd00::/64"), First: netip.MustParseAddr("fd00::5"), Last: netip.MustParseAddr("10.0.0.9")}
	_, err := Canonical([]RangeSet{{r}})
	if e := own(err); e == nil || e.Field != "Sets[0][0].Last" || e.Addr != r.Last {
		t.Errorf("%+v", e)
	}
}

// TestHeaderOfAFutureBoot: a header that has purged an epoch which has not begun, or names a boot that is too long, is damaged.
func TestHeaderOfAFutureBoot(t *testing.T) {
	for _, c := range []struct {
		h    header
		good bool
	}{
		{header{epoch: 3, purged: 3, boot: "b"}, true}, {header{epoch: 3, purged: 4, boot: "b"}, false},
		{header{boot: strings.Repeat("b", maxName)}, true}, {header{boot: strings.Repeat("b", maxName+1)}, false},
	} {
		got, err := decode[header]("H", encode(c.h))
		if c.good != (err == nil) || c.good && got != c.h || !c.good && !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%+v: %+v, %v", c.h, got, err)
		}
	}
}

// TestHighestSet: the position of the set with the highest number is taken over, and that of one beyond it is not.
func TestHighestSet(t *testing.T) {
	highest := int64(1<<32 - 1)
	if int64(int(highest)) != highest {
		highest = 1<<31 - 1 // the highest int
	}
	w := newWorld(t, subnets("10.0.0.0/24"))
	e, err := New(w.store, Config{Network: "net"})
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr("10.0.0.9")
	left, err := e.Import(ctx, State{Cursors: map[int]netip.Addr{int(highest): at}})
	if err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	if s, err := e.Export(ctx); err != nil || s.Cursors[int(highest)] != at {
		t.Errorf("%v, %v", s.Cursors, err)
	}
}
