package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// treePool is what prefixes come from, all of one length: so the first address names a prefix.
var treePool = prefixes.Pool{Prefix: netip.MustParsePrefix("fd00::/52"), Sizes: prefixes.Sizes{Shortest: 60, Longest: 60}}

// tree has prefixes of an allocator on the store.
type tree struct{ *prefixes.Allocator }

func (t tree) Hold(ctx context.Context, handle string) (netip.Addr, error) {
	h, err := t.Assign(ctx, prefixes.Request{Pool: treePool.Prefix, Owner: handle, Bits: 60})
	return h.Prefix.Addr(), err
}

func (t tree) Leave(ctx context.Context, handle string) error {
	if _, err := t.ReleaseByOwner(ctx, handle); !errors.Is(err, ipalloc.ErrNotHeld) {
		return err
	}
	return nil // by the call that this one repeats
}

func (t tree) Holders(ctx context.Context) (map[netip.Addr]string, error) {
	held := make(map[netip.Addr]string)
	for h, err := range t.All(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		held[h.Prefix.Addr()] = h.Owner
	}
	if rep, err := t.Check(ctx); err != nil || len(rep.Problems) > 0 {
		return nil, fmt.Errorf("check of the prefixes: %v, %w", rep, err)
	}
	return held, nil
}

// services have addresses of a registry that a child keeps in a journal.
type services struct{ *remote }

func (s services) Hold(ctx context.Context, handle string) (netip.Addr, error) {
	a, err := s.call(ctx, "Hold", Question{Keys: []string{handle}})
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(a.Records[0].Value)
}

func (s services) Leave(ctx context.Context, handle string) error {
	_, err := s.call(ctx, "Leave", Question{Keys: []string{handle}})
	return err
}

func (s services) Holders(ctx context.Context) (map[netip.Addr]string, error) {
	a, err := s.call(ctx, "Holders", Question{})
	held := make(map[netip.Addr]string)
	for _, r := range a.Records {
		held[netip.MustParseAddr(r.Value)] = r.Key
	}
	return held, err
}

// openJournal opens the registry of a child whose store is a file: in a file beside it.
func openJournal(ctx context.Context, place string) (*journal.Journal[*servicealloc.Registry], error) {
	s, err := boltstore.Open(ctx, place+".journal", boltstore.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	j, err := journal.OpenRegistry(ctx, s, "services", servicealloc.PortRange{First: 30000, Last: 32767})
	if err != nil {
		return nil, err
	}
	return j, j.Do(ctx, func(r *servicealloc.Registry) error {
		if len(r.Ranges()) > 0 {
			return nil
		}
		return r.SetRange(servicealloc.RangeInfo{Name: "services", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}})
	})
}

// do changes the journal. What follows an error is settled by a repetition.
func (s *server) do(a *Answer, f func(*servicealloc.Registry) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	err := s.journal.Do(ctx, f)
	a.failed(err)
	a.Retry = err != nil
	return nil
}

func (s *server) Hold(q Question, a *Answer) error {
	return s.do(a, func(r *servicealloc.Registry) (err error) {
		g, held := r.Get(q.Keys[0])
		if !held {
			g, err = r.Allocate(q.Keys[0], servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}})
		}
		if err == nil {
			a.Records = []store.Record{{Key: g.Owner, Value: g.Addrs[0].String()}}
		}
		return err
	})
}

func (s *server) Leave(q Question, a *Answer) error {
	return s.do(a, func(r *servicealloc.Registry) error {
		if _, err := r.Release(q.Keys[0], 0); !errors.Is(err, ipalloc.ErrNotHeld) {
			return err
		}
		return nil // by the call that this one repeats
	})
}

func (s *server) Holders(_ Question, a *Answer) error {
	s.journal.View(func(r *servicealloc.Registry) {
		a.failed(r.Check())
		for g := range r.All() {
			a.Records = append(a.Records, store.Record{Key: g.Owner, Value: g.Addrs[0].String()})
		}
	})
	return nil
}
