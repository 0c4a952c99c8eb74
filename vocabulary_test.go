package ipalloc_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// until calls f until it fails, and returns the error.
func until(t *testing.T, f func(i int) error) error {
	for i := range 100 {
		if err := f(i); err != nil {
			return err
		}
	}
	t.Fatal("never full")
	return nil
}

// Every allocator that has nothing left says so with the same sentinel and one type of
// error, which names the package and the call.
func TestFullEverywhere(t *testing.T) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	set, err := cidrset.New(prefix("10.0.0.0/23"), 24)
	must(err)
	nodes, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: []netip.Prefix{prefix("10.0.0.0/23")}}}})
	must(err)
	labels, err := nodeipam.New(nodeipam.Config{ByLabels: true})
	must(err)
	must(labels.AddEntry(nodeipam.Entry{Name: "default", IPv4: prefix("10.0.0.0/23"), HostBits: 8}))
	addrs, err := servicealloc.NewRange(prefix("10.0.0.0/29"))
	must(err)
	ports, err := servicealloc.NewPorts(servicealloc.PortRange{First: 30000, Last: 30003})
	must(err)
	services, err := servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 30003})
	must(err)
	engine, err := ipset.New(store.NewMemory(), ipset.Options{})
	must(err)
	must(engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: prefix("10.0.0.0/30"), BlockBits: 31}))
	local, err := hostlocal.New(store.NewMemory(), hostlocal.Config{Network: "pods", Sets: []hostlocal.RangeSet{{{Subnet: prefix("10.0.0.0/29")}}}})
	must(err)

	for name, allocate := range map[string]func(i int) error{
		"cidrset":             func(int) error { _, err := set.AllocateNext(); return err },
		"cidrset, of a size":  func(int) error { _, err := set.AllocatePrefix(24); return err },
		"nodeipam":            func(i int) error { _, err := nodes.Allocate(nodeipam.Node{Name: fmt.Sprint(i)}); return err },
		"nodeipam, by labels": func(i int) error { _, err := labels.Allocate(nodeipam.Node{Name: fmt.Sprint(i)}); return err },
		"servicealloc":        func(int) error { _, _, err := addrs.AllocateNext(); return err },
		"servicealloc, ports": func(int) error { _, _, err := ports.AllocateNext(); return err },
		"servicealloc, registry": func(i int) error {
			_, err := services.Allocate(fmt.Sprint(i), servicealloc.Request{Ports: []servicealloc.Port{{}}})
			return err
		},
		"ipset": func(i int) error { _, err := engine.Assign(ctx, alloc.HostOwner("a"), fmt.Sprint(i)); return err },
		"hostlocal": func(i int) error {
			_, err := local.Add(ctx, hostlocal.Attachment{Container: fmt.Sprint(i), Interface: "eth0"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := until(t, allocate)
			var e *ipalloc.Error
			if !errors.Is(err, ipalloc.ErrFull) || !errors.As(err, &e) || e.Package == "" || e.Op == "" {
				t.Errorf("a full allocator returns %#v: %v", err, err)
			}
		})
	}
}

// Bytes that no package wrote match one sentinel everywhere.
func TestCorruptEverywhere(t *testing.T) {
	for name, restore := range map[string]func([]byte) error{
		"bitmap":   func(b []byte) error { return new(bitmap.Bitmap).UnmarshalBinary(b) },
		"cidrset":  func(b []byte) error { _, err := cidrset.Restore(prefix("10.0.0.0/23"), 24, b); return err },
		"nodeipam": func(b []byte) error { _, err := nodeipam.Restore(b); return err },
		"servicealloc": func(b []byte) error {
			_, err := servicealloc.NewRange(prefix("10.0.0.0/29"), servicealloc.Restore(b))
			return err
		},
		"store": func(b []byte) error { _, err := store.RestoreMemory(b); return err },
	} {
		for _, b := range [][]byte{nil, []byte("garbage of some length")} {
			err := restore(b)
			var e *ipalloc.Error
			if !errors.Is(err, ipalloc.ErrCorrupt) || !errors.As(err, &e) {
				t.Errorf("%s, %q: %#v: %v", name, b, err, err)
			}
		}
	}
}
