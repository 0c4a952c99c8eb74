package hostlocal_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func Example() {
	ctx := context.Background()
	engine, err := hostlocal.New(store.NewMemory(), hostlocal.Config{
		Network: "pods",
		Sets: []hostlocal.RangeSet{
			{{Subnet: netip.MustParsePrefix("10.1.2.0/24")}},
			{{Subnet: netip.MustParsePrefix("2001:db8:1::/64")}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c1 := hostlocal.Attachment{Container: "c1", Interface: "eth0"}
	got, err := engine.Add(ctx, c1)
	for _, a := range got {
		fmt.Println(a.Prefix, "via", a.Gateway)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	freed, err := engine.Del(ctx, c1)
	fmt.Println(freed, err)
	got, err = engine.Add(ctx, c1)
	for _, a := range got {
		fmt.Println(a.Prefix.Addr())
	}
	fmt.Println(err)
	// Output:
	// 10.1.2.2/24 via 10.1.2.1
	// 2001:db8:1::2/64 via 2001:db8:1::1
	// [10.1.2.2 2001:db8:1::2] <nil>
	// 10.1.2.3
	// 2001:db8:1::3
	// <nil>
}

func ExampleEngine_Add_requested() {
	ctx := context.Background()
	engine, err := hostlocal.New(store.NewMemory(), hostlocal.Config{
		Network: "pods",
		Sets:    []hostlocal.RangeSet{{{Subnet: netip.MustParsePrefix("192.0.2.0/28")}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	want := netip.MustParseAddr("192.0.2.9")
	got, err := engine.Add(ctx, hostlocal.Attachment{Container: "db", Interface: "eth0"}, want)
	fmt.Println(got[0].Prefix, err)

	_, err = engine.Add(ctx, hostlocal.Attachment{Container: "web", Interface: "eth0"}, want)
	fmt.Println(errors.Is(err, ipalloc.ErrOccupied), err)
	// Output:
	// 192.0.2.9/28 <nil>
	// true hostlocal: add 192.0.2.9 for "web/eth0" in "pods": Sets[0]: occupied, held by "db/eth0"
}

func ExampleEngine_GC() {
	ctx := context.Background()
	engine, err := hostlocal.New(store.NewMemory(), hostlocal.Config{
		Network: "pods",
		Sets:    []hostlocal.RangeSet{{{Subnet: netip.MustParsePrefix("192.0.2.0/28")}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, container := range []string{"alive", "lost"} {
		if _, err := engine.Add(ctx, hostlocal.Attachment{Container: container, Interface: "eth0"}); err != nil {
			fmt.Println(err)
			return
		}
	}
	freed, err := engine.GC(ctx, hostlocal.GCArgs{Valid: []hostlocal.Attachment{{Container: "alive", Interface: "eth0"}}})
	for _, h := range freed {
		fmt.Println(h.Attachment, h.Addresses)
	}
	fmt.Println(err)
	// Output:
	// lost/eth0 [192.0.2.3]
	// <nil>
}
