package ipset

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A refusal names the argument, says what is wrong with it, and what would be right, because a number alone explains nothing.
func TestRefusalTexts(t *testing.T) {
	e, err := New(store.NewMemory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	host := alloc.HostOwner("a")
	add := func(name, prefix string, change func(*alloc.Pool)) error {
		p := alloc.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix)}
		if change != nil {
			change(&p)
		}
		return e.AddPool(bg, p)
	}
	if err := add("lan", "10.0.0.0/24", func(p *alloc.Pool) { p.Cooldown = time.Minute }); err != nil {
		t.Fatal(err)
	}
	assign := func(a alloc.AssignArgs) error { _, err := e.AutoAssign(bg, a); return err }
	newEngine := func(db store.Store, o Options) error { _, err := New(db, o); return err }
	assignIP := func(a string) error {
		_, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: netip.MustParseAddr(a), Owner: host})
		return err
	}
	offer := func() error {
		_, err := e.Offer(bg, alloc.AssignArgs{Owner: host, Num4: 1, Handle: "x"})
		return err
	}
	renew := func() error { _, err := e.Renew(bg, "x", alloc.RenewArgs{TTL: -1}); return err }
	renewIP := func() error {
		_, err := e.RenewIP(bg, netip.MustParseAddr("10.0.0.1"), alloc.Guard{}, alloc.RenewArgs{TTL: -1})
		return err
	}
	decline := func() error {
		_, err := e.Decline(bg, alloc.DeclineArgs{Address: netip.MustParseAddr("10.0.0.1")})
		return err
	}
	row := func() error { return assign(alloc.AssignArgs{Owner: host, Num4: 3, Choose: alloc.Aligned()}) }
	for _, c := range []struct {
		err         error
		is          error
		field, text string
	}{
		{newEngine(nil, Options{}), ipalloc.ErrInvalid, "db", "is nil"},
		{newEngine(store.NewMemory(), Options{Skew: -1}), ipalloc.ErrInvalid, "Skew", "-1ns is negative"},
		{add("", "10.1.0.0/24", nil), ipalloc.ErrInvalid, "Name", "it is empty"},
		{add("b", "10.1.0.0/24", func(p *alloc.Pool) { p.BlockBits = 16 }), ipalloc.ErrInvalid, "BlockBits", "/16 is not from /24 to /32"},
		{add("b", "fd00::/48", func(p *alloc.Pool) { p.BlockBits = 56 }), ipalloc.ErrInvalid, "BlockBits", "/56 is not from /64 to /128"},
		{add("b", "10.1.0.0/24", func(p *alloc.Pool) { p.Cooldown = -1 }), ipalloc.ErrInvalid, "Cooldown", "-1ns is negative"},
		{add("b", "10.1.0.0/24", func(p *alloc.Pool) { p.MaxBlocksPerHost = -1 }), ipalloc.ErrInvalid, "MaxBlocksPerHost", "-1 is negative"},
		{add("b", "10.0.0.8/29", nil), ipalloc.ErrInvalid, "Prefix", "whole blocks (/26)"},
		{add("b", "10.0.0.0/24", nil), ipalloc.ErrExists, "", "another pool has that prefix"},
		{add("lan", "10.0.0.0/24", nil), ipalloc.ErrExists, "Cooldown", "with another Cooldown (1m0s)"},
		{assign(alloc.AssignArgs{Num4: 1}), ipalloc.ErrInvalid, "Owner", "zero value; name a host"},
		{assign(alloc.AssignArgs{Owner: alloc.Owner{Kind: 7, Name: "a"}, Num4: 1}), ipalloc.ErrInvalid, "Owner", "unknown kind 7"},
		{assign(alloc.AssignArgs{Owner: host}), ipalloc.ErrInvalid, "Num4", "0 IPv4 and 0 IPv6 addresses asked for, want 1 to 4096"},
		{assign(alloc.AssignArgs{Owner: host, Num4: 1, TTL: -1}), ipalloc.ErrInvalid, "TTL", "-1ns is negative"},
		{row(), ipalloc.ErrInvalid, "Choose", "aligned 3 IPv4 and 0 IPv6 addresses: each number must be 0 or a power of two"},
		{assignIP("10.9.0.1"), ipalloc.ErrNotFound, "", "no pool has the address"},
		{offer(), ipalloc.ErrInvalid, "TTL", "0s is not above 0"},
		{renew(), ipalloc.ErrInvalid, "TTL", "-1ns is negative"},
		{renewIP(), ipalloc.ErrInvalid, "TTL", "-1ns is negative"},
		{decline(), ipalloc.ErrInvalid, "For", "0s is not above 0"},
		{e.Operator().SplitPool(bg, "lan", 9), ipalloc.ErrInvalid, "bits", "9 is not from 1 to 8"},
		{e.Operator().SplitPool(bg, "lan", 3), ipalloc.ErrInvalid, "bits", "a /27 part is smaller than a /26 block"},
		{e.Operator().ImportBlock(bg, nil), ipalloc.ErrInvalid, "block", "is nil"},
	} {
		got := new(ipalloc.Error)
		if !errors.Is(c.err, c.is) || !errors.As(c.err, &got) || got.Field != c.field || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%v (field %q), want %v of %q with %q", c.err, got.Field, c.is, c.field, c.text)
		}
	}
}

// Assign asks for IPv4 and then for IPv6. Where no pool qualifies, the error says what keeps the pools out, not that they are of the other
// family.
func TestAssignSaysWhyNoPoolQualifies(t *testing.T) {
	for prefix, other := range map[string]string{"10.0.0.0/24": "fd00::/120", "fd00::/120": "10.0.0.0/24"} {
		e, err := New(store.NewMemory(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, two := range []bool{false, true} {
			if err := e.AddPool(bg, alloc.Pool{Name: "x", Prefix: netip.MustParsePrefix(prefix), Manual: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Assign(bg, alloc.HostOwner("a"), "pod-1"); !errors.Is(err, ipalloc.ErrNotFound) || !strings.Contains(err.Error(), "only calls that name it") {
				t.Errorf("%s, two %v: %v", prefix, two, err)
			}
			if err := e.AddPool(bg, alloc.Pool{Name: "y", Prefix: netip.MustParsePrefix(other), Manual: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
