package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// churn returns a block after n random operations: with cooling addresses, equal and own handles.
func churn(t testing.TB, r *rand.Rand, prefix string, n int) *block.Block {
	p := netip.MustParsePrefix(prefix)
	b, err := block.New(p, block.Options{
		Owner: alloc.Owner{Kind: alloc.OwnerKind(1 + r.IntN(2)), Name: "o"}, Head: r.Uint64N(2), Tail: r.Uint64N(2), Claimed: t0, Seq: r.Uint64N(1 << 40),
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []netip.Addr
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	now := t0
	for range n {
		now = now.Add(time.Second)
		b.Advance(now, 5*time.Second)
		attrs, _ := alloc.NewAttributes(map[string]string{"k": fmt.Sprint(r.IntN(2))})
		c := alloc.Claim{Handle: fmt.Sprint("h", r.IntN(9)), Attributes: attrs}
		at := all[r.IntN(len(all))]
		switch r.IntN(4) {
		case 0:
			b.AutoAssign(nil, 1+r.IntN(4), c, now, nil)
		case 1:
			b.Assign(at, c, now)
		case 2:
			b.Release(at, alloc.Guard{}, now, time.Duration(r.IntN(2)*10)*time.Second)
		case 3:
			b.SetAttributes(at, alloc.Guard{}, attrs, c.Attributes)
		}
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 50 {
		b := churn(t, r, "10.0.0.64/28", 40)
		data, err := Export(b, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Import(data, 10*time.Second)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		head, tail := b.Reserved()
		if h, l := c.Reserved(); c.Owner() != b.Owner() || h != head || l != tail || c.Seq() <= b.Seq() || c.Used() != b.Used() {
			t.Fatalf("imported %+v, was %+v", c, b)
		}
		again, err := Export(c, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var x, y record
		json.Unmarshal(data, &x)
		json.Unmarshal(again, &y)
		x.Sequence, y.Sequence = 0, 0
		if d := cmp.Diff(x, y); d != "" {
			t.Fatalf("exported again:\n%s", d)
		}
	}
}

func TestExportRefuses(t *testing.T) {
	b, err := block.New(netip.MustParsePrefix("10.0.0.0/15"), block.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Export(b, 0); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}

func TestImport(t *testing.T) {
	const good = `{"cidr":"10.0.0.0/30","affinity":"host:node-a","affinityClaimTime":"2026-01-02T03:04:05Z",
		"allocations":[null,0,0,1],"unallocated":[0],"attributes":[{"handle_id":"pod-1","secondary":{"pod":"p"}},
		{"handle_id":null,"secondary":null,"releasedAt":"2026-01-02T03:04:05Z"}],
		"sequenceNumber":1767323045000000007,"sequenceNumberForAllocation":{"1":1767323045000000001,"2":1767323045000000006},"deleted":false}`
	b, err := Import([]byte(good), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	a, ok := b.Lookup(netip.MustParseAddr("10.0.0.2"))
	if !ok || a.Handle != "pod-1" || a.Attributes.Map()["pod"] != "p" || a.Seq != 1767323045000000006 {
		t.Errorf("10.0.0.2: %+v", a)
	}
	if b.Owner() != alloc.HostOwner("node-a") || b.Cooling() != 1 || b.Used() != 2 {
		t.Errorf("owner %v, %d cooling, %d used", b.Owner(), b.Cooling(), b.Used())
	}
	if got := b.AutoAssign(nil, 4, alloc.Claim{Handle: "new"}, t0, nil); len(got) != 1 || got[0].Seq <= 1767323045000000006 {
		t.Errorf("assigned %v", got)
	}
	for name, data := range map[string]string{
		"not JSON":       `{`,
		"no cidr":        `{}`,
		"4-in-6":         `{"cidr":"::ffff:10.0.0.0/126","allocations":[null,null,null,null],"unallocated":[0,1,2,3]}`,
		"too few":        `{"cidr":"10.0.0.0/30","allocations":[null],"unallocated":[0]}`,
		"huge":           `{"cidr":"2001:db8::/64","allocations":[],"unallocated":[]}`,
		"twice free":     `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,0,1]}`,
		"nowhere":        `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0]}`,
		"free and taken": `{"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[0,1],"attributes":[{"handle_id":"h"}]}`,
		"no attributes":  `{"cidr":"10.0.0.0/31","allocations":[7,null],"unallocated":[1]}`,
		"one too few":    `{"cidr":"10.0.0.0/31","allocations":[1,null],"unallocated":[1],"attributes":[{"handle_id":"h"}]}`,
		"a minus":        `{"cidr":"10.0.0.0/31","allocations":[-1,null],"unallocated":[1],"attributes":[{"handle_id":"h"}]}`,
		"out of range":   `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,1,9]}`,
		"negative":       `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[-1,1]}`,
		"deleted":        `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,1],"deleted":true}`,
		"affinity":       `{"cidr":"10.0.0.0/31","affinity":"cat:x","allocations":[null,null],"unallocated":[0,1]}`,
		"all reserved":   `{"cidr":"10.0.0.0/31","allocations":[0,0],"unallocated":[],"attributes":[{"handle_id":"windows-reserved-ipam-handle"}]}`,
		"NUL in handle":  `{"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"a\u0000b"}]}`,
	} {
		if b, err := Import([]byte(data), 0); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}
