package main

import (
	"context"
	"fmt"
	"net/netip"

	goipam "github.com/metal-stack/go-ipam"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The contestants.
const ours, theirs = "ours", "go-ipam"

var bg = context.Background()

// engine is a contestant with one pool.
type engine interface {
	assign() error
	pair() error // assigns an address and releases it
}

// oursEngine makes the calls of README's program.
type oursEngine struct {
	*ipset.Engine
	calls int // handles so far
}

var lan = alloc.VirtualOwner("lan")

func newOurs(s store.Store, pool netip.Prefix) engine {
	e := must(ipset.New(s, ipset.Options{}))
	all := netipx.RangeOfPrefix(pool)
	check(e.AddPool(bg, alloc.Pool{
		Name: "lan", Prefix: pool, BlockBits: 24, Order: alloc.Lowest,
		Ranges: []netipx.IPRange{netipx.IPRangeFrom(all.From().Next(), all.To().Prev())},
	}))
	return &oursEngine{Engine: e}
}

func (e *oursEngine) next() string {
	e.calls++
	return fmt.Sprint("client", e.calls)
}

func (e *oursEngine) assign() error {
	_, err := e.Assign(bg, lan, e.next())
	return err
}

func (e *oursEngine) pair() error {
	handle := e.next()
	if _, err := e.Assign(bg, lan, handle); err != nil {
		return err
	}
	released, err := e.ReleaseByHandle(bg, handle)
	if err == nil && len(released) != 1 {
		err = fmt.Errorf("%d addresses released, want 1", len(released))
	}
	return err
}

// theirsEngine makes the calls of go-ipam's README.
type theirsEngine struct {
	goipam.Ipamer
	cidr string
}

func newTheirs(s goipam.Storage, pool netip.Prefix) engine {
	e := goipam.NewWithStorage(s)
	return &theirsEngine{e, must(e.NewPrefix(bg, pool.String())).Cidr}
}

func (e *theirsEngine) assign() error {
	_, err := e.AcquireIP(bg, e.cidr)
	return err
}

func (e *theirsEngine) pair() error {
	ip, err := e.AcquireIP(bg, e.cidr)
	if err != nil {
		return err
	}
	return e.ReleaseIPFromPrefix(bg, e.cidr, ip.IP.String())
}

// must returns v; an error is the end of the run.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// check ends the run if there is an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
