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
	if err := present("open", s); err != nil {
		return nil, err
	}
	table, err := s.OpenTable(prefix + name)
	if err != nil {
		return nil, &ipalloc.Error{Package: "journal", Op: "open", Name: name, Err: err}
	}
	j := &Journal[A]{table: table, name: name, kind: k}
	if err = j.load(ctx); err == nil && k.suits != nil {
		err = j.matches(k.suits(j.alloc))
	}
	if err == nil {
		err = j.tidy()
	}
	if err != nil {
		table.Close()
		return nil, err
	}
	return j, nil
}

// present returns an error for a nil store.
func present(op string, s *boltstore.Store) error {
	if s != nil {
		return nil
	}
	return &ipalloc.Error{Package: "journal", Op: op, Field: "s", Reason: "is nil", Err: ipalloc.ErrInvalid}
}

// tidy removes what a crash left over and, if the journal is new or has a log, writes a snapshot. One that has a snapshot does
// without another: its log is as good.
func (j *Journal[A]) tidy() error {
	l := &j.log
	j.sweep()
	fresh := l.snapshot == 0
	if !fresh && l.next == l.first {
		return nil
	}
	err := j.writeSnapshot(j.alloc)
	if !fresh && errors.Is(err, boltstore.ErrNoSpace) {
		j.compact()
		_ = j.keepRoom() // or less of it, or none
		return nil
	}
	if errors.Is(err, boltstore.ErrReadOnly) {
		return nil
	}
	return err
}

// matches returns an error if the journal keeps another allocator than the caller asked for.
func (j *Journal[A]) matches(is string, err error) error {
	if err == nil {
		return nil
	}
	return &ipalloc.Error{Package: "journal", Op: "open", Name: j.name, Reason: fmt.Sprintf("it keeps %s, and %v", is, err), Err: ipalloc.ErrMismatch}
}

// OpenSet opens the journal of a cidrset.Set. If the file has none of that name, OpenSet makes it with pool, childBits and opts.
// At each opening, opts say how the set picks children; cidrset.OnChange must not be among them. Children released before a crash
// cool for the whole time again.
//
// Errors: [ipalloc.ErrInUse] if the journal is open. [ipalloc.ErrMismatch] if it keeps another type of allocator, or a set of
// another pool. [ipalloc.ErrVersion] if its format has another version. [ipalloc.ErrCorrupt] if it contradicts itself. Else the
// errors of cidrset.New, of [boltstore.Store.Commit] and of a read. After an error nothing has been applied.
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

// serviceChange translates a change. A change of the ranges is rare, so it takes a snapshot.
func serviceChange(c servicealloc.Change) change {
	out := change{Op: string(c.Op), grant: grantOf(c.Grant)}
	switch c.Op {
	case servicealloc.OpAllocate, servicealloc.OpRelease, servicealloc.OpReplace:
	case servicealloc.OpMove:
		from := grantOf(c.From)
		out.From = &from
	default:
		out.whole = true
	}
	return out
}

// grantOf and of translate a grant.
func grantOf(g servicealloc.Grant) grant {
	return grant{text(g.Owner), g.Generation, g.Addrs, g.Ports, g.Spilled}
}

func (g grant) of() servicealloc.Grant {
	return servicealloc.Grant{Owner: string(g.Owner), Generation: g.Generation, Addrs: g.Addrs, Ports: g.Ports, Spilled: g.Spilled}
}

// told returns opts with the option by which an allocator reports its changes. It stands last, where it replaces any other.
func told(opts []servicealloc.Option, tell func(change), more ...servicealloc.Option) []servicealloc.Option {
	return append(append(append([]servicealloc.Option(nil), opts...), more...),
		servicealloc.OnChange(func(c servicealloc.Change) { tell(serviceChange(c)) }))
}

// services is a kind whose allocator make returns.
func services[A any](name string, opts []servicealloc.Option, make func(opts ...servicealloc.Option) (A, error)) kind[A] {
	return kind[A]{
		name:   name,
		create: func(tell func(change)) (A, error) { return make(told(opts, tell)...) },
		restore: func(data []byte, tell func(change)) (A, error) {
			return make(told(opts, tell, servicealloc.Restore(data))...)
		},
	}
}

// holder is what the allocators of services without owners have in common.
type holder[T any] interface {
	Allocate(T) error
	Release(T) bool
}

// replayService repeats a change of an allocator of addresses or ports.
func replayService[T any](a holder[T], c change, of []T) error {
	for _, x := range of {
		switch servicealloc.Op(c.Op) {
		case servicealloc.OpAllocate:
			if err := a.Allocate(x); err != nil {
				return err
			}
		case servicealloc.OpRelease:
			if !a.Release(x) {
				return fmt.Errorf("%v is not held", x)
			}
		default:
			return unknownChange(c)
		}
	}
	return nil
}

// OpenRange opens the journal of a servicealloc.Range. If the file has none of that name, OpenRange makes it with p and opts.
// Later, p and opts must be the same. A servicealloc.OnChange among them is not called. It returns the errors of [OpenSet] and of
// servicealloc.NewRange, and ipalloc.ErrMismatch also for another prefix and for other options.
func OpenRange(ctx context.Context, s *boltstore.Store, name string, p netip.Prefix, opts ...servicealloc.Option) (*Journal[*servicealloc.Range], error) {
	k := services("servicealloc.Range", opts, func(opts ...servicealloc.Option) (*servicealloc.Range, error) {
		return servicealloc.NewRange(p, opts...)
	})
	k.marshal = (*servicealloc.Range).MarshalBinary
	k.replay = func(r *servicealloc.Range, c change) error { return replayService[netip.Addr](r, c, c.Addrs) }
	return open(ctx, s, name, k)
}

// OpenPorts opens the journal of a servicealloc.Ports, as [OpenRange] does for a Range.
func OpenPorts(ctx context.Context, s *boltstore.Store, name string, r servicealloc.PortRange, opts ...servicealloc.Option) (*Journal[*servicealloc.Ports], error) {
	k := services("servicealloc.Ports", opts, func(opts ...servicealloc.Option) (*servicealloc.Ports, error) {
		return servicealloc.NewPorts(r, opts...)
	})
	k.marshal = (*servicealloc.Ports).MarshalBinary
	k.replay = func(p *servicealloc.Ports, c change) error {
		var numbers []uint16
		for _, port := range c.Ports {
			numbers = append(numbers, port.Number)
		}
		return replayService[uint16](p, c, numbers)
	}
	return open(ctx, s, name, k)
}

// OpenRegistry opens the journal of a servicealloc.Registry, as [OpenRange] does for a Range. A change of its ranges writes a
// snapshot. A servicealloc.Tx is begun and ended within [Journal.Do], as a rule in two calls. If the program ends between them,
// the owner holds both the old and the new.
func OpenRegistry(ctx context.Context, s *boltstore.Store, name string, ports servicealloc.PortRange, opts ...servicealloc.Option) (*Journal[*servicealloc.Registry], error) {
	k := services("servicealloc.Registry", opts, func(opts ...servicealloc.Option) (*servicealloc.Registry, error) {
		return servicealloc.NewRegistry(ports, opts...)
	})
	k.marshal, k.retire = (*servicealloc.Registry).MarshalBinary, (*servicealloc.Registry).Close
	k.replay = replayRegistry
	return open(ctx, s, name, k)
}

func replayRegistry(r *servicealloc.Registry, c change) error {
	switch servicealloc.Op(c.Op) {
	case servicealloc.OpAllocate, servicealloc.OpReplace, servicealloc.OpRelease, servicealloc.OpMove:
	default:
		return unknownChange(c)
	}
	out := servicealloc.Change{Op: servicealloc.Op(c.Op), Grant: c.grant.of()}
	if c.From != nil {
		out.From = c.From.of()
	}
	return r.Apply(out)
}
