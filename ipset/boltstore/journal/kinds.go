package journal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// open opens a journal that is not open.
func open[A any](ctx context.Context, s *boltstore.Store, name string, k kind[A]) (*Journal[A], error) {
	if name == "" || len(name) > maxName {
		return nil, &ipalloc.Error{Package: "journal", Op: "open", Field: "name", Reason: "must have 1 to 1000 bytes", Err: ipalloc.ErrInvalid}
	}
	table, err := s.OpenTable(prefix + name)
	if err != nil {
		return nil, &ipalloc.Error{Package: "journal", Op: "open", Name: name, Err: err}
	}
	j := &Journal[A]{table: table, name: name, kind: k}
	if err = j.load(ctx); err == nil && k.suits != nil {
		err = j.matches(k.suits(j.alloc))
	}
	if err == nil && (j.log.snapshot == 0 || j.log.next > j.log.first) {
		if err = j.writeSnapshot(j.alloc); errors.Is(err, boltstore.ErrReadOnly) {
			err = nil
		}
	}
	if err != nil {
		table.Close()
		return nil, err
	}
	return j, nil
}

// matches returns an error if the journal keeps another allocator than the caller asked for.
func (j *Journal[A]) matches(is string, err error) error {
	if err == nil {
		return nil
	}
	return &ipalloc.Error{Package: "journal", Op: "open", Name: j.name, Reason: fmt.Sprintf("it keeps %s, and %v", is, err), Err: ipalloc.ErrMismatch}
}

// OpenSet opens the journal of a cidrset.Set, which is made with pool, childBits and opts if the file has none of that name.
// Every time it is opened, opts say how the set picks children; cidrset.OnChange must not be among them. Children that were
// given back before a crash cool for the whole time again.
//
// Errors: ipalloc.ErrInUse if the journal is open; ipalloc.ErrMismatch if it keeps another type of allocator, a set of
// another pool, or was written by a newer program; ipalloc.ErrCorrupt if it contradicts itself. Else the errors of
// cidrset.New, of [boltstore.Store.Commit] and of a read. Nothing is applied then.
func OpenSet(ctx context.Context, s *boltstore.Store, name string, pool netip.Prefix, childBits int, opts ...cidrset.Option) (*Journal[*cidrset.Set], error) {
	with := func(tell func(change)) []cidrset.Option {
		return append(append([]cidrset.Option(nil), opts...), cidrset.OnChange(func(c cidrset.Change) {
			tell(change{Op: c.Op.String(), Prefixes: c.Prefixes})
		}))
	}
	return open(ctx, s, name, kind[*cidrset.Set]{
		name: "cidrset.Set",
		create: func(tell func(change)) (*cidrset.Set, error) {
			return cidrset.New(pool, childBits, with(tell)...)
		},
		restore: func(data []byte, tell func(change)) (*cidrset.Set, error) {
			return cidrset.Restore(pool, childBits, data, with(tell)...)
		},
		marshal: (*cidrset.Set).MarshalBinary,
		finish: func(set *cidrset.Set, b *batch) {
			at := set.Cursor()
			b.Cursor = &at
		},
		replay: replaySet,
		settle: func(set *cidrset.Set, b batch) error {
			if b.Cursor == nil {
				return errors.New("no cursor")
			}
			return set.SetCursor(*b.Cursor)
		},
	})
}

// errUnknownChange means that a newer program wrote a change.
var errUnknownChange = errors.New("a change that this program does not know")

func unknownChange(c change) error { return fmt.Errorf("%w: %q", errUnknownChange, c.Op) }

func replaySet(set *cidrset.Set, c change) error {
	switch c.Op {
	case cidrset.OpAllocate.String():
		for _, p := range c.Prefixes {
			if err := set.Claim(p); err != nil {
				return err
			}
		}
		return nil
	case cidrset.OpOccupy.String():
		for _, p := range c.Prefixes {
			if _, err := set.Occupy(p); err != nil {
				return err
			}
		}
		return nil
	case cidrset.OpRelease.String():
		_, err := set.ReleaseN(c.Prefixes)
		return err
	}
	return unknownChange(c)
}

// serviceChange translates a change. What is rare, or can't be repeated by naming what it took, takes a snapshot.
func serviceChange(c servicealloc.Change) change {
	out := change{Op: c.Op.String(), Owner: c.Owner, Generation: c.Generation, Addrs: c.Addrs, Ports: c.Ports}
	switch c.Op {
	case servicealloc.OpAllocate, servicealloc.OpRelease:
	case servicealloc.OpReplace:
		out.whole = c.Owner == ""
	default:
		out.whole = true
	}
	return out
}

// told is the option by which an allocator tells of its changes. It stands last, where it takes the place of any other.
func told(opts []servicealloc.Option, tell func(change)) []servicealloc.Option {
	return append(append([]servicealloc.Option(nil), opts...), servicealloc.OnChange(func(c servicealloc.Change) { tell(serviceChange(c)) }))
}

// holder is what the allocators of services have in common.
type holder[T any] interface {
	Allocate(T) error
	Release(T) bool
}

// replayService repeats a change of an allocator of addresses or ports.
func replayService[T any](a holder[T], c change, of []T) error {
	for _, x := range of {
		switch c.Op {
		case servicealloc.OpAllocate.String():
			if err := a.Allocate(x); err != nil {
				return err
			}
		case servicealloc.OpRelease.String():
			if !a.Release(x) {
				return fmt.Errorf("%v is not held", x)
			}
		default:
			return unknownChange(c)
		}
	}
	return nil
}

// OpenRange opens the journal of a servicealloc.Range, which is made with p and opts if the file has none of that name.
// Later, what the file says holds, and opts are not looked at. A servicealloc.OnChange among them is not called; a
// servicealloc.Random lasts until the store is closed. The errors are those of [OpenSet] and of servicealloc.New.
func OpenRange(ctx context.Context, s *boltstore.Store, name string, p netip.Prefix, opts ...servicealloc.Option) (*Journal[*servicealloc.Range], error) {
	return open(ctx, s, name, kind[*servicealloc.Range]{
		name: "servicealloc.Range",
		create: func(tell func(change)) (*servicealloc.Range, error) {
			return servicealloc.New(p, told(opts, tell)...)
		},
		restore: func(data []byte, tell func(change)) (*servicealloc.Range, error) {
			return servicealloc.Restore(data, told(nil, tell)...)
		},
		marshal: (*servicealloc.Range).MarshalBinary,
		replay: func(r *servicealloc.Range, c change) error {
			return replayService[netip.Addr](r, c, c.Addrs)
		},
		suits: func(r *servicealloc.Range) (string, error) {
			if r.Prefix() != p {
				return r.Prefix().String(), fmt.Errorf("asked for is %v", p)
			}
			return p.String(), nil
		},
	})
}

// OpenPorts opens the journal of a servicealloc.Ports, in the way of [OpenRange].
func OpenPorts(ctx context.Context, s *boltstore.Store, name string, r servicealloc.PortRange, opts ...servicealloc.Option) (*Journal[*servicealloc.Ports], error) {
	return open(ctx, s, name, kind[*servicealloc.Ports]{
		name: "servicealloc.Ports",
		create: func(tell func(change)) (*servicealloc.Ports, error) {
			return servicealloc.NewPorts(r, told(opts, tell)...)
		},
		restore: func(data []byte, tell func(change)) (*servicealloc.Ports, error) {
			return servicealloc.RestorePorts(data, told(nil, tell)...)
		},
		marshal: (*servicealloc.Ports).MarshalBinary,
		replay: func(p *servicealloc.Ports, c change) error {
			return replayService[servicealloc.Port](p, c, c.Ports)
		},
		suits: func(p *servicealloc.Ports) (string, error) {
			return suitsPorts(p.Range(), r)
		},
	})
}

func suitsPorts(have, want servicealloc.PortRange) (string, error) {
	if have != want {
		return have.String(), fmt.Errorf("asked for is %v", want)
	}
	return have.String(), nil
}

// OpenRanges opens the journal of a servicealloc.Ranges, in the way of [OpenRange]. Adding, draining and removing a range writes
// a snapshot.
func OpenRanges(ctx context.Context, s *boltstore.Store, name string, opts ...servicealloc.Option) (*Journal[*servicealloc.Ranges], error) {
	return open(ctx, s, name, kind[*servicealloc.Ranges]{
		name: "servicealloc.Ranges",
		create: func(tell func(change)) (*servicealloc.Ranges, error) {
			return servicealloc.NewRanges(told(opts, tell)...)
		},
		restore: func(data []byte, tell func(change)) (*servicealloc.Ranges, error) {
			return servicealloc.RestoreRanges(data, told(nil, tell)...)
		},
		marshal: (*servicealloc.Ranges).MarshalBinary,
		replay: func(r *servicealloc.Ranges, c change) error {
			return replayService[netip.Addr](r, c, c.Addrs)
		},
	})
}

// OpenRegistry opens the journal of a servicealloc.Registry, in the way of [OpenRange]. Adding, draining and removing a range, and
// a grant that spilled into a static band, write a snapshot.
func OpenRegistry(ctx context.Context, s *boltstore.Store, name string, ports servicealloc.PortRange, opts ...servicealloc.Option) (*Journal[*servicealloc.Registry], error) {
	return open(ctx, s, name, kind[*servicealloc.Registry]{
		name: "servicealloc.Registry",
		create: func(tell func(change)) (*servicealloc.Registry, error) {
			return servicealloc.NewRegistry(ports, told(opts, tell)...)
		},
		restore: func(data []byte, tell func(change)) (*servicealloc.Registry, error) {
			return servicealloc.RestoreRegistry(data, told(nil, tell)...)
		},
		marshal: (*servicealloc.Registry).MarshalBinary,
		finish: func(r *servicealloc.Registry, b *batch) {
			for i := range b.Changes {
				c := &b.Changes[i]
				if g, ok := r.Get(c.Owner); ok && g.Spilled {
					c.whole = true // a grant made by naming what it holds would not say so
				}
			}
		},
		replay: replayRegistry,
		suits: func(r *servicealloc.Registry) (string, error) {
			return suitsPorts(r.PortRange(), ports)
		},
	})
}

func replayRegistry(r *servicealloc.Registry, c change) error {
	var g servicealloc.Grant
	var err error
	req := servicealloc.Request{Addrs: c.Addrs, Ports: c.Ports}
	switch c.Op {
	case servicealloc.OpAllocate.String():
		g, err = r.Allocate(c.Owner, req)
	case servicealloc.OpReplace.String():
		old, _ := r.Get(c.Owner)
		g, err = r.Replace(c.Owner, old.Generation, req)
	case servicealloc.OpRelease.String():
		return r.ReleaseIf(c.Owner, c.Generation)
	default:
		return unknownChange(c)
	}
	if err == nil && g.Generation != c.Generation {
		err = fmt.Errorf("generation %d", g.Generation)
	}
	return err
}
