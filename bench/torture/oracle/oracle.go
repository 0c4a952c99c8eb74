package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Kind is the kind of a call.
type Kind string

// The calls of a store.
const (
	Get    Kind = "get"
	List   Kind = "list"
	Commit Kind = "commit"
)

// Outcome is how a call ended. The zero Outcome is a call without an answer.
type Outcome string

// The outcomes of a call.
const (
	Done     Outcome = "done"
	Conflict Outcome = "conflict"
	Refused  Outcome = "refused" // it left no trace
	Replaced Outcome = "told that the store was replaced"
	Unknown  Outcome = "unknown"
)

// Call is one call with its answer. Begin and End are times on one clock.
type Call struct {
	ID         string
	Kind       Kind
	Begin, End int64
	Keys       []string
	Range      store.Range
	Ops        []store.Op

	Outcome Outcome
	Key     string // of a conflict; the error, if the store was replaced
	Records []store.Record
	Rev     uint64
}

// Watch is what one watch yielded.
type Watch struct {
	After    uint64
	Prefixes []string
	Events   []store.Event
}

const markPrefix = area + "u/"

// Mark returns the key that the commit of a call puts beside all others, at any revision.
func Mark(id string) string { return markPrefix + id }

// writes reports whether the commit changes anything.
func (c *Call) writes() bool {
	return c.Kind == Commit && slices.ContainsFunc(c.Ops, func(op store.Op) bool { return op.Kind != store.Guard })
}

// history is the replay.
type history struct {
	calls   map[string]*Call
	made    map[uint64]*Call
	revs    []uint64 // of made, ascending
	records map[string][]store.Record
	keys    []string // of records, ascending
	lows    []bound  // by when something was known: the highest revision known until then
	highs   []bound  // by when a commit began, descending: the lowest revision of those that began then or later
}

// bound is a revision that counts from a time on.
type bound struct {
	at  int64
	rev uint64
}

// Check replays the calls and returns the wrong answers, up to a limit.
func Check(calls []Call, watches []Watch) error {
	h := &history{calls: make(map[string]*Call), made: make(map[uint64]*Call), records: make(map[string][]store.Record)}
	for i := range calls {
		h.calls[calls[i].ID] = &calls[i]
	}
	errs := h.find(calls, watches)
	if len(errs) == 0 {
		errs = append(h.replay(), h.order()...)
	}
	if len(errs) == 0 {
		h.keys = slices.Sorted(maps.Keys(h.records))
		h.bounds(calls)
		for i := range calls {
			if err := h.call(&calls[i]); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", calls[i].Kind, calls[i].ID, err))
			}
		}
		for i := range watches {
			if err := h.watch(&watches[i]); err != nil {
				errs = append(errs, fmt.Errorf("watch of %q after %d: %w", watches[i].Prefixes, watches[i].After, err))
			}
		}
	}
	return errors.Join(errs[:min(len(errs), 20)]...)
}

// find collects the commits that were made: those acknowledged, and those of which somebody saw the mark.
func (h *history) find(calls []Call, watches []Watch) (errs []error) {
	at := make(map[string]uint64)
	made := func(id string, rev uint64, who string) {
		c := h.calls[id]
		switch {
		case c == nil:
			errs = append(errs, fmt.Errorf("%s saw a commit %q, which nobody asked for", who, id))
		case c.Outcome == Conflict || c.Outcome == Refused:
			errs = append(errs, fmt.Errorf("%s saw commit %s at revision %d, which ended as %s", who, id, rev, c.Outcome))
		case at[id] != 0 && at[id] != rev:
			errs = append(errs, fmt.Errorf("%s saw commit %s at revision %d, made at %d", who, id, rev, at[id]))
		case h.made[rev] != nil && h.made[rev] != c:
			errs = append(errs, fmt.Errorf("%s saw commit %s at revision %d, which is that of %s", who, id, rev, h.made[rev].ID))
		default:
			at[id], h.made[rev] = rev, c
		}
	}
	saw := func(recs []store.Record, who string) {
		for _, r := range recs {
			if id, ok := strings.CutPrefix(r.Key, markPrefix); ok && r.Rev != 0 {
				made(id, r.Rev, who)
			}
		}
	}
	for i := range calls {
		if c := &calls[i]; c.Outcome == Done && c.writes() {
			made(c.ID, c.Rev, "its caller")
		}
	}
	for i := range calls {
		saw(calls[i].Records, string(calls[i].Kind)+" "+calls[i].ID)
	}
	for i := range watches {
		for _, ev := range watches[i].Events {
			saw(ev.Changes, "a watch")
		}
	}
	for rev := range h.made {
		h.revs = append(h.revs, rev)
	}
	slices.Sort(h.revs)
	return errs
}

// replay makes the commits in the order of their revisions.
func (h *history) replay() (errs []error) {
	for _, rev := range h.revs {
		c := h.made[rev]
		for _, op := range c.Ops {
			if now := h.at(op.Key, rev-1); op.Expect != store.AnyRevision && now.Rev != op.Expect {
				errs = append(errs, fmt.Errorf("commit %s at revision %d expected %q at %d, it was at %d", c.ID, rev, op.Key, op.Expect, now.Rev))
			}
		}
		for _, op := range c.Ops {
			switch {
			case op.Kind == store.Put:
				h.records[op.Key] = append(h.records[op.Key], store.Record{Key: op.Key, Value: op.Value, Rev: rev})
			case op.Kind == store.Delete && h.at(op.Key, rev-1).Rev != 0:
				h.records[op.Key] = append(h.records[op.Key], store.Record{Key: gone, Rev: rev})
			}
		}
	}
	return errs
}

// gone is the key of a version that is a removal.
const gone = "\xffgone"

// at returns the record of a key at a revision.
func (h *history) at(key string, rev uint64) store.Record {
	versions := h.records[key]
	i, exact := slices.BinarySearchFunc(versions, rev, func(v store.Record, rev uint64) int { return cmp.Compare(v.Rev, rev) })
	if !exact {
		i--
	}
	if i < 0 || versions[i].Key == gone {
		return store.Record{Key: key}
	}
	return versions[i]
}

// order verifies that no commit has a higher revision than one that began after its end.
func (h *history) order() (errs []error) {
	ended, who := int64(math.MaxInt64), ""
	for _, rev := range slices.Backward(h.revs) {
		c := h.made[rev]
		if c.Begin > ended {
			errs = append(errs, fmt.Errorf("commit %s at revision %d began after the end of %s, which has a higher one", c.ID, rev, who))
		}
		if c.Outcome == Done && c.End < ended {
			ended, who = c.End, c.ID
		}
	}
	return errs
}

// bounds prepares low and high.
func (h *history) bounds(calls []Call) {
	for i := range calls {
		c := &calls[i]
		if c.Outcome != Done {
			continue
		}
		b := bound{at: c.End}
		if c.writes() {
			b.rev = c.Rev
		}
		for _, r := range c.Records {
			b.rev = max(b.rev, r.Rev)
		}
		h.lows = append(h.lows, b)
	}
	slices.SortFunc(h.lows, func(a, b bound) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(h.lows); i++ {
		h.lows[i].rev = max(h.lows[i].rev, h.lows[i-1].rev)
	}
	for _, rev := range h.revs {
		h.highs = append(h.highs, bound{h.made[rev].Begin, rev})
	}
	slices.SortFunc(h.highs, func(a, b bound) int { return cmp.Compare(a.at, b.at) })
	for i := len(h.highs) - 2; i >= 0; i-- {
		h.highs[i].rev = min(h.highs[i].rev, h.highs[i+1].rev)
	}
}

// interval returns the lowest and the highest revision that a store can have had between the times.
func (h *history) interval(c *Call) (low, high uint64) {
	if i, _ := slices.BinarySearchFunc(h.lows, c.Begin, func(b bound, at int64) int { return cmp.Compare(b.at, at) }); i > 0 {
		low = h.lows[i-1].rev
	}
	high = math.MaxUint64
	if i, _ := slices.BinarySearchFunc(h.highs, c.End, func(b bound, at int64) int { return cmp.Compare(b.at, at+1) }); i < len(h.highs) {
		high = h.highs[i].rev - 1
	}
	return low, high
}

// moment reports whether ok holds at one of the revisions of an interval at which one of the keys changed, or its begin.
func (h *history) moment(low, high uint64, keys []string, ok func(rev uint64) bool) bool {
	if ok(low) {
		return true
	}
	for _, k := range keys {
		for _, v := range h.records[k] {
			if v.Rev > low && v.Rev <= high && ok(v.Rev) {
				return true
			}
		}
	}
	return false
}

// call compares the answer of a call with the replay.
func (h *history) call(c *Call) error {
	low, high := h.interval(c)
	holds := func(op store.Op, rev uint64) bool {
		return op.Expect == store.AnyRevision || h.at(op.Key, rev).Rev == op.Expect
	}
	var keys []string
	for _, op := range c.Ops {
		keys = append(keys, op.Key)
	}
	switch {
	case c.Kind == Get && c.Outcome == Done:
		return h.get(c, low, high)
	case c.Kind == List && c.Outcome == Done:
		return h.list(c, low, high)
	case c.Outcome == Replaced:
		return fmt.Errorf("no commit is missing, and the process is told: %s", c.Key)
	case c.Outcome == Conflict:
		i := slices.IndexFunc(c.Ops, func(op store.Op) bool { return op.Key == c.Key })
		if i < 0 || !h.moment(low, high, keys, func(rev uint64) bool { return !holds(c.Ops[i], rev) }) {
			return fmt.Errorf("in conflict on %q, which had the expected revision from %d to %d", c.Key, low, high)
		}
	case c.Kind == Commit && c.Outcome == Done && !c.writes():
		if !h.moment(low, high, keys, func(rev uint64) bool {
			return !slices.ContainsFunc(c.Ops, func(op store.Op) bool { return !holds(op, rev) })
		}) {
			return fmt.Errorf("its guards held together at no revision from %d to %d", low, high)
		}
	}
	return nil
}

func (h *history) get(c *Call, low, high uint64) error {
	if len(c.Records) != len(c.Keys) {
		return fmt.Errorf("%d records for %d keys", len(c.Records), len(c.Keys))
	}
	same := func(rev uint64) bool {
		for i, k := range c.Keys {
			if c.Records[i] != h.at(k, rev) {
				return false
			}
		}
		return true
	}
	if !h.moment(low, high, c.Keys, same) {
		return fmt.Errorf("the records were so together at no revision from %d to %d", low, high)
	}
	return nil
}

func (h *history) list(c *Call, low, high uint64) error {
	if c.Rev < low || c.Rev > high {
		return fmt.Errorf("revision %d, it must be from %d to %d", c.Rev, low, high)
	}
	var want []store.Record
	i, _ := slices.BinarySearch(h.keys, c.Range.From)
	for _, k := range h.keys[i:] {
		if c.Range.To != "" && k >= c.Range.To {
			break
		}
		if r := h.at(k, c.Rev); r.Rev != 0 {
			want = append(want, r)
		}
	}
	if c.Range.Reverse {
		slices.Reverse(want)
	}
	if c.Range.Limit > 0 {
		want = want[:min(len(want), c.Range.Limit)]
	}
	if !slices.Equal(c.Records, want) {
		return fmt.Errorf("%d records at revision %d are not the %d of the history", len(c.Records), c.Rev, len(want))
	}
	return nil
}

// watch compares what a watch yielded with the commits after its begin.
func (h *history) watch(w *Watch) error {
	i, _ := slices.BinarySearch(h.revs, w.After+1)
	for _, ev := range w.Events {
		var want store.Event
		for ; i < len(h.revs) && len(want.Changes) == 0; i++ {
			want = h.event(h.revs[i], w.Prefixes)
		}
		if ev.Rev != want.Rev || !slices.Equal(ev.Changes, want.Changes) {
			return fmt.Errorf("it yielded revision %d with %d changes; revision %d with %d comes next", ev.Rev, len(ev.Changes), want.Rev, len(want.Changes))
		}
	}
	return nil
}

// event returns what a commit is to a watch.
func (h *history) event(rev uint64, prefixes []string) store.Event {
	ev := store.Event{Rev: rev}
	for _, op := range h.made[rev].Ops {
		watched := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(op.Key, p) })
		if watched && (op.Kind == store.Put || op.Kind == store.Delete && h.at(op.Key, rev-1).Rev != 0) {
			ev.Changes = append(ev.Changes, h.at(op.Key, rev))
		}
	}
	slices.SortFunc(ev.Changes, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
	return ev
}
