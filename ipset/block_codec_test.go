package ipset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipalloc/ipalloc"
)

// churn returns a block after n random operations: with leases, cooling, equal and own handles.
func churn(t testing.TB, r *rand.Rand, prefix string, n int, leases bool) *Block {
	b := mustBlock(t, prefix, BlockOptions{Owner: Owner{OwnerKind(1 + r.IntN(2)), "o"}, Head: r.Uint64N(2), Tail: r.Uint64N(2), Claimed: t0, Seq: r.Uint64N(1 << 40)})
	now := t0
	for range n {
		now = now.Add(time.Second)
		b.Advance(now, 5*time.Second)
		attrs, _ := NewAttributes(map[string]string{"k": fmt.Sprint(r.IntN(2))})
		c := Claim{Handle: fmt.Sprint("h", r.IntN(9)), Attributes: attrs}
		if leases && r.IntN(2) == 0 {
			c.TTL = time.Duration(r.IntN(40)) * time.Second
		}
		switch r.IntN(4) {
		case 0:
			b.AutoAssign(nil, 1+r.IntN(4), c, now, nil)
		case 1:
			b.Assign(b.addr(r.Uint64N(b.last+1)), c, now)
		case 2:
			b.Release(b.addr(r.Uint64N(b.last+1)), Guard{}, now, time.Duration(r.IntN(2)*10)*time.Second)
		case 3:
			b.SetAttributes(b.addr(r.Uint64N(b.last+1)), Guard{}, attrs, c.Attributes)
		}
		mustCheck(t, b)
	}
	return b
}

func TestBlockCodecRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, prefix := range []string{"10.0.0.0/30", "10.0.0.64/26", "10.0.0.0/24", "2001:db8::100/121", "2001:db8::/104"} {
		for i := range 30 {
			b := churn(t, r, prefix, 60, i%2 == 0)
			data := string(b.encode(nil))
			c, err := DecodeBlock(data)
			if err != nil {
				t.Fatalf("%s: %v", prefix, err)
			}
			if again := string(c.encode(nil)); again != data {
				t.Fatalf("%s: coded again:\n%x\n%x", prefix, data, again)
			}
			now := t0.Add(time.Hour)
			b.Advance(now, 0)
			c.Advance(now, 0)
			if d := cmp.Diff(b.AutoAssign(nil, 300, Claim{}, now, nil), c.AutoAssign(nil, 300, Claim{}, now, nil), cmp.Comparer(func(a, b Allocation) bool { return a == b })); d != "" {
				t.Fatalf("%s: goes on differently:\n%s", prefix, d)
			}
		}
	}
}

func TestBlockDecodeRefusesDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 40 {
		data := churn(t, r, "10.0.0.0/27", 40, true).encode(nil)
		for i := range data {
			if _, err := DecodeBlock(string(data[:i])); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatalf("cut at %d: %v", i, err)
			}
			bad := append([]byte(nil), data...)
			bad[i] ^= byte(1 << r.IntN(8))
			if b, err := DecodeBlock(string(bad)); err == nil {
				mustCheck(t, b)
			} else if !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatalf("byte %d changed: %v", i, err)
			}
		}
		if _, err := DecodeBlock(string(data) + "x"); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Fatalf("followed by more: %v", err)
		}
	}
}

func TestCalicoRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 50 {
		b := churn(t, r, "10.0.0.64/28", 40, false)
		data, err := b.ExportCalico(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ImportCalicoBlock(data, 10*time.Second)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if c.owner != b.owner || c.head != b.head || c.tail != b.tail || c.seq <= b.seq || c.used != b.used {
			t.Fatalf("imported %+v, was %+v", c, b)
		}
		again, err := c.ExportCalico(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var x, y calicoBlock
		json.Unmarshal(data, &x)
		json.Unmarshal(again, &y)
		x.Sequence, y.Sequence = 0, 0
		if d := cmp.Diff(x, y); d != "" {
			t.Fatalf("exported again:\n%s", d)
		}
	}
}

func TestImportCalicoBlock(t *testing.T) {
	const good = `{"cidr":"10.0.0.0/30","affinity":"host:node-a","affinityClaimTime":"2026-01-02T03:04:05Z",
		"allocations":[null,0,0,1],"unallocated":[0],"attributes":[{"handle_id":"pod-1","secondary":{"pod":"p"}},
		{"handle_id":null,"secondary":null,"releasedAt":"2026-01-02T03:04:05Z"}],
		"sequenceNumber":1767323045000000007,"sequenceNumberForAllocation":{"1":1767323045000000001,"2":1767323045000000006},"deleted":false}`
	b, err := ImportCalicoBlock([]byte(good), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	mustCheck(t, b)
	a, ok := b.Lookup(ip("10.0.0.2"))
	if !ok || a.Handle != "pod-1" || a.Attributes.Map()["pod"] != "p" || a.Seq != 1767323045000000006 {
		t.Errorf("10.0.0.2: %+v", a)
	}
	if b.Owner() != HostOwner("node-a") || b.Cooling() != 1 || b.Used() != 2 {
		t.Errorf("owner %v, %d cooling, %d used", b.Owner(), b.Cooling(), b.Used())
	}
	if got := b.AutoAssign(nil, 4, Claim{Handle: "new"}, t0, nil); len(got) != 1 || got[0].Seq <= 1767323045000000006 {
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
		"out of range":   `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,1,9]}`,
		"negative":       `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[-1,1]}`,
		"deleted":        `{"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,1],"deleted":true}`,
		"affinity":       `{"cidr":"10.0.0.0/31","affinity":"cat:x","allocations":[null,null],"unallocated":[0,1]}`,
		"all reserved":   `{"cidr":"10.0.0.0/31","allocations":[0,0],"unallocated":[],"attributes":[{"handle_id":"windows-reserved-ipam-handle"}]}`,
		"NUL in handle":  `{"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"a\u0000b"}]}`,
	} {
		if b, err := ImportCalicoBlock([]byte(data), 0); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}
