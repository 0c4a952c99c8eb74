package fuzz

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/model"
	"github.com/ipalloc/ipalloc/ipset"
)

var ipsetStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// blockPrefixes are the blocks a trace may choose from: one address, a few, a page, several pages.
var blockPrefixes = []string{"10.0.0.1/32", "10.0.0.0/31", "10.0.0.0/29", "10.0.0.64/26", "10.0.1.0/25", "fd00::/128", "fd00::8/125", "fd00::/120"}

const blockOps = 8

// replayBlock runs a trace on a block and on its twin and compares every answer, and the state after every step.
func replayBlock(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	p := netip.MustParsePrefix(blockPrefixes[tr.Op(len(blockPrefixes))])
	size := 1 << (p.Addr().BitLen() - p.Bits())
	head, tail := int(tr.Below(3)), int(tr.Below(2))
	now := ipsetStart
	b, err := ipset.NewBlock(p, ipset.BlockOptions{Head: uint64(head), Tail: uint64(tail), Claimed: now})
	if head+tail >= size { // IP2
		if !errors.Is(err, ipset.ErrBadBlockSize) {
			t.Fatalf("%s with %d + %d reserved: %v", p, head, tail, err)
		}
		return
	}
	m := model.NewIPSetBlock(p, head, tail, now)
	m.Owner = ""
	var reserved netip.Prefix
	avoid := func(a netip.Addr) bool { return reserved.IsValid() && reserved.Contains(a) }
	address := func() netip.Addr {
		a := p.Addr()
		for range tr.Below(uint64(size)) {
			a = a.Next()
		}
		return a
	}
	claim := func() (ipset.Claim, model.IPSetHold) {
		v := tr.Uint()
		c := ipset.Claim{Handle: fmt.Sprint("h", v%5)}
		c.Attributes, _ = ipset.NewAttributes(map[string]string{"k": fmt.Sprint(v / 5 % 2)})
		h := model.IPSetHold{Handle: c.Handle, Attr: fmt.Sprint(v / 5 % 2)}
		if v/10%3 == 0 {
			c.TTL = time.Duration(1+v/30%20) * time.Second
			h.Until = now.Add(c.TTL)
		}
		return c, h
	}
	seen := make(map[ipset.Release]bool)
	fresh := func(al ipset.Allocation) {
		k := ipset.Release{Address: al.Address, Guard: ipset.Guard{Seq: al.Seq}}
		if seen[k] {
			t.Fatalf("%s has sequence number %d again", al.Address, al.Seq)
		}
		seen[k] = true
	}
	for step := 0; tr.More(); step++ {
		b.Advance(now, 7*time.Second)
		m.Advance(now, 7*time.Second)
		switch op := tr.Op(blockOps); op {
		case 0, 1:
			n := int(tr.Below(uint64(min(size, 9)) + 1))
			c, h := claim()
			var set *netipx.IPSet
			if reserved.IsValid() {
				var sb netipx.IPSetBuilder
				sb.AddPrefix(reserved)
				set, _ = sb.IPSet()
			}
			got := b.AutoAssign(nil, n, c, now, set)
			want := m.Peek(n, avoid)
			if !slices.EqualFunc(got, want, func(al ipset.Allocation, a netip.Addr) bool { return al.Address == a }) {
				t.Fatalf("step %d: assigned %v, want %v", step, got, want)
			}
			for _, al := range got {
				fresh(al)
				m.Take(al.Address, h)
			}
		case 2:
			a := address()
			c, h := claim()
			al, err := b.Assign(a, c, now)
			why := m.CanTake(a, c.Handle)
			if want := map[string]error{"": nil, "taken": ipset.ErrTaken, "cooling": ipset.ErrCooling, "reserved": ipset.ErrReserved}[why]; !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Fatalf("step %d: assign %s: %v, want %q", step, a, err, why)
			}
			if err == nil {
				fresh(al)
				m.Take(a, h)
			}
		case 3, 4:
			a, cool := address(), time.Duration(tr.Below(3))*5*time.Second
			want := ipset.WasFree
			if h, ok := m.Holds[a]; ok && !h.Cooling {
				want = ipset.Released
				m.Drop(a, now, cool)
			}
			if o, err := b.Release(a, ipset.Guard{}, now, cool); o != want || err != nil {
				t.Fatalf("step %d: release %s: %v, %v, want %v", step, a, o, err, want)
			}
		case 5:
			now = now.Add(time.Duration(tr.Below(30)) * time.Second)
		case 6:
			reserved = netip.PrefixFrom(address(), p.Bits()+int(tr.Below(uint64(p.Addr().BitLen()-p.Bits()+1)))).Masked()
		case 7: // through the code and back
			data, _ := b.MarshalBinary()
			c, err := ipset.DecodeBlock(string(data))
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			b = c
		}
		compareBlock(t, b, m)
	}
}

// compareBlock compares a block with its twin.
func compareBlock(t testing.TB, b *ipset.Block, m *model.IPSetBlock) {
	t.Helper()
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if free := slices.Collect(b.FreeAddresses()); !slices.Equal(free, m.Free) {
		t.Fatalf("%s: free %v, want %v", m.Prefix, free, m.Free)
	}
	n := 0
	for al := range b.All() {
		h, ok := m.Holds[al.Address]
		if !ok || h.Cooling != al.Cooling || h.Handle != al.Handle || !h.Until.Equal(al.Until) {
			t.Fatalf("%s: %+v, want %+v", m.Prefix, al, h)
		}
		if h.Attr != "" && al.Attributes.Map()["k"] != h.Attr {
			t.Fatalf("%s: %+v, want %+v", m.Prefix, al, h)
		}
		n++
	}
	if n != len(m.Holds) || b.Used() != uint64(m.Used()) || b.Owner().String() != m.Owner {
		t.Fatalf("%s: %d addresses, %d held, owner %s; want %d, %d, %s", m.Prefix, n, b.Used(), b.Owner(), len(m.Holds), m.Used(), m.Owner)
	}
	if since, ok := b.Empty(); ok && !since.Equal(m.Since) {
		t.Fatalf("%s: empty since %v, want %v", m.Prefix, since, m.Since)
	}
}

// FuzzBlock replays traces on a block and its twin, and reads any bytes as a block.
func FuzzBlock(f *testing.F) { // IP2
	for i := range 8 {
		f.Add(randomBytes(uint64(i), 200))
		b, _ := ipset.NewBlock(netip.MustParsePrefix("10.0.0.0/28"), ipset.BlockOptions{Owner: ipset.HostOwner("h"), Head: 1, Claimed: ipsetStart, Seq: 9})
		b.AutoAssign(nil, i, ipset.Claim{Handle: "p", TTL: time.Duration(i%2) * time.Hour}, ipsetStart, nil)
		b.Release(netip.MustParseAddr("10.0.0.2"), ipset.Guard{}, ipsetStart, time.Minute)
		data, _ := b.MarshalBinary()
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := ipset.DecodeBlock(string(data)); err == nil {
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			again, _ := b.MarshalBinary()
			if c, err := ipset.DecodeBlock(string(again)); err != nil {
				t.Fatal(err)
			} else if twice, _ := c.MarshalBinary(); string(twice) != string(again) {
				t.Fatalf("%x is coded again as %x", again, twice)
			}
		} else if !errors.Is(err, ipset.ErrRecord) {
			t.Fatal(err)
		}
		replayBlock(t, data)
	})
}

// randomBytes returns n bytes that a seed gives.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 77))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestBlockAgainstTwin(t *testing.T) { // IP2
	for seed := range uint64(300) {
		replayBlock(t, randomBytes(seed, 400))
	}
}
