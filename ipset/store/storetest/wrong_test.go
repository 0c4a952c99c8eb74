package storetest

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/fails"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// wrong is a store that changes the events of a watch.
type wrong struct {
	store.Store
	event func(*store.Event)
}

func (w wrong) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for ev, err := range w.Store.Watch(ctx, after, prefixes...) {
			w.event(&ev)
			if !yield(ev, err) {
				return
			}
		}
	}
}

// forgetful is a store whose watches end after an event.
type forgetful struct{ store.Store }

func (forgetful) Watch(_ context.Context, after uint64, _ ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if yield(store.Event{Rev: after + 1, Changes: make([]store.Record, 1)}, nil) {
			yield(store.Event{}, ipalloc.ErrOutOfRange)
		}
	}
}

// liar is a store whose reads and commits another function makes.
type liar struct {
	store.Store
	get    func(s store.Store, dst []store.Record, keys []string) ([]store.Record, error)
	list   func(recs []store.Record) []store.Record
	commit func(ops []store.Op) []store.Op
}

func (l liar) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if err := ctx.Err(); l.get == nil || err != nil {
		return l.Store.Get(ctx, dst, keys...)
	}
	return l.get(l.Store, dst, keys)
}

func (l liar) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	recs, rev, err := l.Store.List(ctx, r)
	if l.list != nil {
		recs = l.list(recs)
	}
	return recs, rev, err
}

func (l liar) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if l.commit != nil {
		ops = l.commit(ops)
	}
	return l.Store.Commit(ctx, ops)
}

// changed returns a lie about each record of a list.
func changed(lie func(*store.Record)) func([]store.Record) []store.Record {
	return func(recs []store.Record) []store.Record {
		for i := range recs {
			lie(&recs[i])
		}
		return recs
	}
}

// each returns a lie about each op of a commit.
func each(lie func(*store.Op)) func([]store.Op) []store.Op {
	return func(ops []store.Op) []store.Op {
		ops = slices.Clone(ops)
		for i := range ops {
			lie(&ops[i])
		}
		return ops
	}
}

// liars are stores that break the contract rarely, or where there is much, and the tests that have to fail.
var liars = map[string]func() liar{
	"a list of 1,000: Sizes": func() liar {
		return liar{list: func(recs []store.Record) []store.Record { return recs[:min(len(recs), 1000)] }}
	},
	"expectations after the 64th: Sizes": func() liar {
		return liar{commit: func(ops []store.Op) []store.Op {
			ops = slices.Clone(ops)
			for i := 64; i < len(ops); i++ {
				if ops[i].Expect = store.AnyRevision; ops[i].Kind == store.Guard {
					ops[i] = store.Op{Kind: store.Delete, Key: "none" + ops[i].Key, Expect: store.AnyRevision}
				}
			}
			return ops
		}}
	},
	"several views: OneView": func() liar {
		return liar{get: func(s store.Store, dst []store.Record, keys []string) ([]store.Record, error) {
			for _, k := range keys {
				dst, _ = s.Get(context.Background(), dst, k)
				runtime.Gosched()
			}
			return dst, nil
		}}
	},
	"a guard of 100: Model": func() liar {
		n := 0
		return liar{commit: func(ops []store.Op) []store.Op {
			ops = slices.Clone(ops)
			for i, op := range ops {
				if op.Kind == store.Guard && op.Key[0] == 'm' {
					if n++; n%100 == 0 {
						ops[i] = store.Op{Kind: store.Delete, Key: "none", Expect: store.AnyRevision}
					}
				}
			}
			return ops
		}}
	},
	"what was in dst: Get": func() liar {
		return liar{get: func(s store.Store, _ []store.Record, keys []string) ([]store.Record, error) {
			return s.Get(context.Background(), nil, keys...)
		}}
	},
	"keys that are not there: Get": func() liar {
		return liar{get: func(s store.Store, dst []store.Record, keys []string) ([]store.Record, error) {
			recs, err := s.Get(context.Background(), dst, keys...)
			return slices.DeleteFunc(recs, func(r store.Record) bool { return r.Rev == 0 && r.Key != "kept" }), err
		}}
	},
	"the order of keys: Get": func() liar {
		return liar{get: func(s store.Store, dst []store.Record, keys []string) ([]store.Record, error) {
			return s.Get(context.Background(), dst, slices.Sorted(slices.Values(keys))...)
		}}
	},
	"a key twice: GetEdges": func() liar {
		return liar{get: func(s store.Store, dst []store.Record, keys []string) ([]store.Record, error) {
			return s.Get(context.Background(), dst, slices.Compact(slices.Clone(keys))...)
		}}
	},
	"the last of a list: List": func() liar {
		return liar{list: func(recs []store.Record) []store.Record { return recs[:max(0, len(recs)-1)] }}
	},
	"descending order: List": func() liar {
		return liar{list: func(recs []store.Record) []store.Record {
			slices.SortFunc(recs, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
			return recs
		}}
	},
	"the revisions of a list: Model": func() liar { return liar{list: changed(func(r *store.Record) { r.Rev++ })} },
	"the values of a list: Model":    func() liar { return liar{list: changed(func(r *store.Record) { r.Value = "" })} },
	"what must not exist: Expectations": func() liar {
		return liar{commit: each(func(op *store.Op) {
			if op.Expect == 0 {
				op.Expect = store.AnyRevision
			}
		})}
	},
	"any revision: Expectations": func() liar {
		return liar{commit: each(func(op *store.Op) {
			if op.Expect == store.AnyRevision {
				op.Expect = 0
			}
		})}
	},
	"all guards: Guards": func() liar {
		return liar{commit: each(func(op *store.Op) {
			if op.Kind == store.Guard {
				*op = del("none"+op.Key, store.AnyRevision)
			}
		})}
	},
	"empty values: Get": func() liar {
		return liar{commit: each(func(op *store.Op) {
			if op.Kind == store.Put && op.Value == "" {
				op.Kind = store.Delete
			}
		})}
	},
	"bytes that are no text: Binary": func() liar {
		return liar{commit: each(func(op *store.Op) { op.Value = strings.ToValidUTF8(op.Value, "?") })}
	},
	"bytes after a zero: Binary": func() liar {
		return liar{commit: each(func(op *store.Op) { op.Value, _, _ = strings.Cut(op.Value, "\x00") })}
	},
	"removals: Model": func() liar {
		return liar{commit: each(func(op *store.Op) {
			if op.Kind == store.Delete {
				*op = put(op.Key, "", op.Expect)
			}
		})}
	},
	"all but the first: AllOrNothing": func() liar { return liar{commit: func(ops []store.Op) []store.Op { return ops[:min(1, len(ops))] }} },
	"a Get of 1,000: Model": func() liar {
		n, last := 0, []store.Record(nil)
		return liar{get: func(s store.Store, dst []store.Record, keys []string) ([]store.Record, error) {
			recs, err := s.Get(context.Background(), nil, keys...)
			if len(keys) == 12 {
				if n++; n%1000 == 0 {
					return append(dst, last...), nil
				}
				last = recs
			}
			return append(dst, recs...), err
		}}
	},
}

func TestLiars(t *testing.T) {
	for name, lie := range liars {
		what, test, _ := strings.Cut(name, ": ")
		t.Run(what, func(t *testing.T) {
			fails.Want(t, "^"+test+"$", func(t *testing.T) {
				TestStore(t, func(t *testing.T) store.Store {
					l := lie()
					l.Store = memory(t)
					return l
				})
			})
		})
	}
}

// The suite fails for a store that breaks the contract.
func TestWrongStores(t *testing.T) {
	for name, tt := range map[string]struct {
		test string // which of the suite has to fail
		open Open
	}{
		"two events of one revision": {"^WatchOrder$", func(t *testing.T) store.Store {
			return wrong{memory(t), func(ev *store.Event) { ev.Rev |= 1 }}
		}},
		"changes without values": {"^Watch$", func(t *testing.T) store.Store {
			return wrong{memory(t), func(ev *store.Event) { changed(func(r *store.Record) { r.Value = "" })(ev.Changes) }}
		}},
		"changes of another revision": {"^Watch$", func(t *testing.T) store.Store {
			return wrong{memory(t), func(ev *store.Event) { changed(func(r *store.Record) { r.Rev++ })(ev.Changes) }}
		}},
		"the last change of an event": {"^Watch$", func(t *testing.T) store.Store {
			return wrong{memory(t), func(ev *store.Event) { ev.Changes = ev.Changes[:max(0, len(ev.Changes)-1)] }}
		}},
		"changes in descending order": {"^Watch$", func(t *testing.T) store.Store {
			return wrong{memory(t), func(ev *store.Event) { slices.Reverse(ev.Changes) }}
		}},
		"a watch that ends in between": {"^WatchForgets$", func(t *testing.T) store.Store { return forgetful{memory(t)} }},
		"no commits": {"^(Get|Expectations|AllOrNothing|Guards|BadCommits|Binary|OneWinner|Snapshots|GetEdges|Errors|Current|OpsAreTheCallers)$", func(t *testing.T) store.Store {
			f := faults.NewFaulty(memory(t))
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if c.Kind == faults.Commit {
					return faults.Fail(faults.ErrInjected)
				}
				return faults.Outcome{}
			})
			return f
		}},
	} {
		t.Run(name, func(t *testing.T) { fails.Want(t, tt.test, func(t *testing.T) { TestStore(t, tt.open) }) })
	}
}
