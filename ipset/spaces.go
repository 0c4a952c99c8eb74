package ipset

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// InSpace returns the engine of a named space, such as a tenant, a VRF or a virtual
// network. Pools of different spaces may overlap. Every engine belongs to one space, with
// its own pools, configuration, reservations, hosts, handles and request keys. Queries,
// Follow, Check and Repair work in that space alone. The space without a name costs
// nothing.
//
// The engine has the options of e and its own cache. Engines of different spaces call
// Options.Now, Labels and Retry.Sleep concurrently. The same name returns the same
// engine. InSpace reads and writes nothing: a space exists while it has a record, and
// [Operator.Spaces] lists the existing ones. The engine of a named space has no access to
// other spaces: its InSpace returns itself for its own name, and fails with
// [ipalloc.ErrInvalid] for any other.
//
// A name has 1 to 255 bytes of UTF-8 without NUL; for any other, InSpace fails with
// [ipalloc.ErrInvalid]. A commit in a space costs one more memory allocation, and its
// keys are longer by the name and two bytes; see [store.Space].
//
// You may keep your own records in the same store, and in each space of it, under keys
// that begin with an upper-case letter. This package does not read, report or remove
// them. It writes only records that a call passes in Also, in the commit of its
// addresses.
func (e *Engine) InSpace(name string) (*Engine, error) {
	if name == e.space && name != "" {
		return e, nil
	}
	if err := e.mustOwnStore("in space"); err != nil {
		return nil, err
	}
	s := e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.engines[name]; in != nil {
		return in, nil
	}
	db, err := store.Space(s.db, name)
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "in space", Field: "name", Name: name, Err: err})
	}
	in, err := New(db, s.options)
	if err != nil {
		return nil, err
	}
	in.space, in.spaces, in.core.Dry, in.core.Import = name, s, s.dry, s.imports
	if s.of != nil {
		real, err := s.of.root.InSpace(name)
		if err != nil {
			return nil, err
		}
		in.standFor(real)
	}
	if s.engines == nil {
		s.engines = make(map[string]*Engine)
	}
	s.engines[name] = in
	return in, nil
}

// Space returns the name of the engine's space, "" for the space without a name.
func (e *Engine) Space() string { return e.space }

// Spaces yields the names of the spaces that exist, in byte order; the space without a
// name is not among them. It reads one record of each space, in one round trip each. An
// error is the last value that it yields. That is the store's error, or
// [ipalloc.ErrCorrupt], after all names, if a key names no space. It first settles
// commits of unknown outcome in all spaces.
func (o Operator) Spaces(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := o.e.mustOwnStore("spaces"); err != nil {
			yield("", err)
			return
		}
		for _, in := range o.e.spaces.all() {
			if err := in.core.Run.Current(ctx); err != nil {
				yield("", cause.Wrap(ipalloc.Error{Op: "spaces", Name: in.space, Err: err}))
				return
			}
		}
		store.Spaces(ctx, o.e.spaces.db)(yield)
	}
}

// SweepAll runs [Operator.Sweep] in the space without a name and in every other space of
// a store, such as the spaces of package numbers. It returns the result of each sweep by
// the name of its space. It stops at the first error, which names the space; the result
// then has the spaces before it.
//
// It is a function of the store, not a method, because the engine of a tenant has no
// access to other spaces. Cost: the sweeps, and a round trip for each space.
func SweepAll(ctx context.Context, db store.Store, o Options, a alloc.SweepArgs) (map[string]alloc.Swept, error) {
	root, err := New(db, o)
	if err != nil {
		return nil, cause.Op("sweep all", err)
	}
	swept, err := root.Operator().sweepAll(ctx, a)
	return swept, cause.Op("sweep all", err)
}

// sweepAll sweeps all spaces of the store of an engine.
func (o Operator) sweepAll(ctx context.Context, a alloc.SweepArgs) (map[string]alloc.Swept, error) {
	swept := make(map[string]alloc.Swept)
	sweep := func(e *Engine) (err error) {
		swept[e.space], err = e.Operator().Sweep(ctx, a)
		return err
	}
	if err := sweep(o.e); err != nil {
		return swept, err
	}
	for name, err := range o.Spaces(ctx) {
		var in *Engine
		if err == nil {
			in, err = o.e.InSpace(name)
		}
		if err == nil {
			err = sweep(in)
		}
		if err != nil {
			return swept, cause.Wrap(ipalloc.Error{Op: "sweep", Name: name, Err: err})
		}
	}
	return swept, nil
}

// RemoveSpace removes all records of this package from a space without pools and without
// held or cooling addresses. These are its empty blocks, its request keys and its
// sequence numbers. A space of that name that is made later is a new one, whose sequence
// numbers start again. It succeeds for a space that does not exist.
//
// If the space has a pool, an address or a record of another program, it fails with
// [ipalloc.ErrInUse] and names it. At most empty blocks have been deleted then. It never
// removes records of other programs. If one is written while RemoveSpace runs,
// RemoveSpace fails with ErrInUse, and only that record remains. No assignment is lost,
// because each deletion is conditional on the unchanged catalog without pools, which is
// deleted last. If RemoveSpace is interrupted, or a pool is added meanwhile, the
// remaining space is consistent: use it, or call RemoveSpace again. It makes a commit for
// each 256 records.
//
// If the first call that an engine makes in a space has an unknown outcome, its commit may
// arrive after the removal. The space then exists again, without pools and addresses; call
// RemoveSpace again.
func (o Operator) RemoveSpace(ctx context.Context, name string) error {
	if err := o.e.mustOwnStore("remove space"); err != nil {
		return err
	}
	in, err := o.e.InSpace(name)
	if err != nil {
		return cause.Op("remove space", err)
	}
	if err := in.admin.RemoveAll(ctx); err != nil {
		return cause.Wrap(ipalloc.Error{Op: "remove space", Name: name, Err: err})
	}
	s := o.e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.engines, name)
	return nil
}

// mustOwnStore refuses the engine of a named space, which a tenant may have. A program
// that has the store also has the engine of the space without a name.
func (e *Engine) mustOwnStore(op string) error {
	if e.space == "" {
		return nil
	}
	return cause.Wrap(ipalloc.Error{Op: op, Field: "space", Name: e.space, Reason: "only the engine of the space without a name does that", Err: ipalloc.ErrInvalid})
}

// all returns the existing engines.
func (s *spaces) all() []*Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Collect(maps.Values(s.engines)), s.root)
}
