package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// window is how much one query of a watch covers: 256 commits.
const window = 256 * oneStep

// Watch implements [store.Store]. It reads the changes of the last Options.History commits, also from before Open, and then waits. Commits of this
// Store wake it at once. On PostgreSQL, notifications wake it for commits of other processes. In addition it polls every Options.Poll. In
// PostgreSQL the first watch takes a connection of the pool for the notifications, unless the pool has only one, and keeps it until the last watch
// ends.
//
// It resumes by itself after a broken connection or while the database is away, without loss or repetition, for as long as ctx lasts. It ends with
// ipalloc.ErrOutOfRange, [ipalloc.ErrReplaced], the context's error, or another error that is not [store.Retryable].
func (s *Store) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		text, args := s.watchQuery(prefixes)
		after := min(after, math.MaxInt64-window)
		defer s.hub.enter(s)()
		for {
			woken := s.hub.wait()
			events, rev, err := s.changes(ctx, text, args, after)
			if err = s.failure(ctx, "watch", err); err != nil && (ctx.Err() != nil || !retryable(err) && !stateOf(err).away) {
				yield(store.Event{}, err)
				return
			}
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
			if err == nil {
				if after = max(after, min(rev, after+window)); after < rev {
					continue
				}
			}
			t := time.NewTimer(s.opts.Poll)
			select {
			case <-woken:
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	}
}

// watchQuery returns the query for the changes of keys with one of the prefixes, and the arguments from the fifth on.
func (s *Store) watchQuery(prefixes []string) (string, []any) {
	var text strings.Builder
	text.WriteString(s.q.watch)
	var args []any
	sorted := slices.Sorted(slices.Values(prefixes))
	last := ""
	for i, p := range sorted {
		if i > 0 && strings.HasPrefix(p, last) {
			continue // another one contains it
		}
		last = p
		joint := " OR "
		if len(args) == 0 {
			joint = " AND ("
		}
		fmt.Fprintf(&text, "%sc.key >= $%d AND c.key < $%d", joint, len(args)+5, len(args)+6)
		args = append(args, []byte(p), endOf(p))
	}
	if len(args) == 0 {
		text.WriteString(" AND (1 = 0")
	}
	text.WriteString(") " + s.q.live)
	return text.String(), args
}

// endOf returns the first key after those with a prefix.
func endOf(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return afterAll
}

// changes returns the events of a window after a revision, and the revision of the store.
func (s *Store) changes(ctx context.Context, text string, args []any, after uint64) ([]store.Event, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := s.usable(); err != nil {
		return nil, 0, err
	}
	since := s.high.Load()
	rows, err := s.db.QueryContext(ctx, text, append([]any{s.id, int64(since), int64(after), int64(after + window)}, args...)...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	var recs []store.Record
	var ats []uint64
	rev, horizon, any := uint64(0), uint64(0), false
	for rows.Next() {
		var key, value sql.RawBytes
		var at sql.NullInt64
		var removed sql.NullBool
		if err := rows.Scan(&rev, &horizon, &at, &key, &value, &removed); err != nil {
			return nil, 0, err
		}
		if any = true; !at.Valid {
			continue
		}
		r := store.Record{Key: string(key)}
		if !removed.Bool {
			r.Value, r.Rev = string(value), uint64(at.Int64)
		}
		recs, ats = append(recs, r), append(ats, uint64(at.Int64))
	}
	switch err := rows.Err(); {
	case err != nil:
		return nil, 0, err
	case !any:
		if err := s.gone(ctx, s.db, since); !errors.Is(err, errForgotten) {
			return nil, 0, err
		}
		fallthrough
	case after>>pastBits < horizon>>pastBits:
		return nil, 0, &ipalloc.Error{Package: "sqlstore", Op: "watch", Reason: "the store no longer has the commits after that revision", Err: ipalloc.ErrOutOfRange}
	}
	return events(recs, ats), rev, s.seen(rev, since)
}

// events joins changes to commits, in order.
func events(recs []store.Record, ats []uint64) []store.Event {
	byRev := make(map[uint64]int)
	var evs []store.Event
	for i, r := range recs {
		n, ok := byRev[ats[i]]
		if !ok {
			n = len(evs)
			byRev[ats[i]] = n
			evs = append(evs, store.Event{Rev: ats[i]})
		}
		evs[n].Changes = append(evs[n].Changes, r)
	}
	for _, ev := range evs {
		slices.SortFunc(ev.Changes, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.SortFunc(evs, func(a, b store.Event) int { return int(int64(a.Rev - b.Rev)) })
	return evs
}

// hub wakes the watches of a store, and has the database listened to while there are any.
type hub struct {
	mu      sync.Mutex
	woken   chan struct{} // closed at the next commit; nil when no watch waits
	watches int
	stop    context.CancelFunc // of the goroutine that listens
}

// wake makes every waiting watch look again.
func (h *hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.woken != nil {
		close(h.woken)
		h.woken = nil
	}
}

// wait returns a channel that is closed at the next commit.
func (h *hub) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.woken == nil {
		h.woken = make(chan struct{})
	}
	return h.woken
}

// enter counts a watch; the function that it returns ends it. A goroutine listens until the last one has ended.
func (h *hub) enter(s *Store) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches++; h.watches == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go func() {
			for ctx.Err() == nil {
				s.d.listen(ctx, s, h.wake)
				_ = combine.Sleep(ctx, s.opts.Poll)
			}
		}()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.watches--; h.watches == 0 {
			h.stop()
		}
	}
}
