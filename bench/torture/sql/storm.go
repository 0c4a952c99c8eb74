package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/torture/history"
	"github.com/ipalloc/ipalloc/internal/pgtest"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// pool is what the writers share.
var pool = netip.MustParsePrefix("10.0.0.0/24")

// checkLimit is how long the checker may think.
const checkLimit = 10 * time.Minute

// fault does something to a database or to one of the processes that use it.
type fault struct {
	name string
	do   func(context.Context) error
}

// stormSQLite torments processes that share a file.
func stormSQLite(ctx context.Context, c config, say func(string, ...any)) error {
	dir, err := os.MkdirTemp("", "torture-sql-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &storm{config: c, driver: "sqlite", dsn: "file:" + filepath.Join(dir, "store.db"), say: say}
	return s.run(ctx, nil)
}

// stormPostgres torments processes that share a server, and the server.
func stormPostgres(ctx context.Context, c config, say func(string, ...any)) error {
	server, err := pgtest.Start(ctx, pgtest.Config{NoSync: !c.Sync})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	s := &storm{config: c, driver: "pgx", dsn: server.DSN(), say: say}
	return s.run(ctx, []fault{
		{"server stopped at once", func(ctx context.Context) error {
			server.Stop()
			return server.Start(ctx)
		}},
		{"sessions ended", func(ctx context.Context) error {
			_, err := s.db.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
			if sqlstore.Retryable(err) {
				err = nil // its own connection was one from before the last stop
			}
			return err
		}},
	})
}

// storm is one run on one database.
type storm struct {
	config
	driver, dsn string
	say         func(string, ...any)
	db          *sql.DB
	store       *sqlstore.Store
	children    []*remote

	mu      sync.Mutex
	failed  int // attempts that ended with an error
	unknown int // of them
}

func (s *storm) run(ctx context.Context, faults []fault) (err error) {
	if s.db, s.store, err = open(ctx, s.driver, s.dsn); err != nil {
		return err
	}
	defer func() { _ = s.db.Close() }()
	fresh, err := ipset.New(s.store, ipset.Options{})
	if err != nil {
		return err
	}
	if err := fresh.AddPool(ctx, ipset.Pool{Name: "p", Prefix: pool, BlockBits: 28}); err != nil {
		return err
	}
	var engines []*ipset.Engine
	for range s.Processes {
		r := &remote{driver: s.driver, dsn: s.dsn}
		defer r.close()
		e, err := ipset.New(r, ipset.Options{Retry: ipset.Retry{Attempts: 50}})
		if err != nil {
			return err
		}
		s.children, engines = append(s.children, r), append(engines, e)
	}
	a := startAudit(ctx, s.store)
	stop, faulted := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(stop)
		faulted <- s.torment(ctx, faults, a)
	}()
	steps, err := history.Run(ctx, history.Config{
		Engines: engines, Pool: pool, Writers: s.Writers, Stop: stop, Name: "w", Seed: s.Seed, Keep: 6, Limit: callLimit, Retry: s.retry,
	})
	if err := errors.Join(err, <-faulted); err != nil {
		return err
	}
	return s.verify(ctx, steps, fresh, a)
}

// torment has one fault after the other until the time is over.
func (s *storm) torment(ctx context.Context, faults []fault, a *audit) error {
	random := rand.New(rand.NewPCG(s.Seed, 1))
	kill := fault{"process killed", func(context.Context) error {
		s.children[random.IntN(len(s.children))].kill()
		return nil
	}}
	times := make(map[string]int)
	for end, n := time.Now().Add(s.Duration), 0; time.Now().Before(end) || n < 2*(len(faults)+1); n++ {
		f := kill
		if len(faults) > 0 && n%3 == 2 {
			f = faults[n/3%len(faults)]
		}
		if err := f.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		times[f.name]++
		select {
		case <-time.After(time.Duration(random.Int64N(int64(s.Hold)))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		s.say("%s: %4d x %s", s.driver, times[name], name)
	}
	return nil
}

// retry notes an error, and says whether the call is repeated.
func (s *storm) retry(err error) bool {
	s.mu.Lock()
	if errors.Is(err, ipalloc.ErrUnknownOutcome) {
		s.unknown++
	}
	s.failed++
	s.mu.Unlock()
	again := retryable(err)
	if again {
		time.Sleep(5 * time.Millisecond) // a writer that fails at once does something else, too
	}
	return again
}

// verify looks at everything that was seen.
func (s *storm) verify(ctx context.Context, steps []history.Step, fresh *ipset.Engine, a *audit) error {
	s.say("%s: %d operations; %d attempts failed, %d of them with unknown outcome, all settled", s.driver, len(steps), s.failed, s.unknown)
	if err := history.Check(steps, checkLimit); err != nil {
		return err
	}
	held := history.Held(steps)
	if err := history.Verify(ctx, fresh, held); err != nil {
		return err
	}
	s.say("%s: the history is linearizable; %d addresses are held, all and only those that were given", s.driver, len(held))
	return a.finish(ctx, s.store, s.say)
}

// audit follows the blocks and the handles of a store by a watch, and so must know them in the end.
type audit struct {
	commits  atomic.Int64
	relists  int
	records  map[string]store.Record
	finished chan error
}

const lastKey = "h: the last one"

func startAudit(ctx context.Context, s *sqlstore.Store) *audit {
	a := &audit{records: make(map[string]store.Record), finished: make(chan error, 1)}
	go func() { a.finished <- a.run(ctx, s) }()
	return a
}

func (a *audit) run(ctx context.Context, s *sqlstore.Store) error {
	for rev := uint64(0); ; a.relists++ {
		for ev, err := range s.Watch(ctx, rev, "b", "h") {
			if errors.Is(err, store.ErrCompacted) {
				break
			}
			if err != nil {
				return err
			}
			if ev.Rev <= rev {
				return fmt.Errorf("the watch yielded revision %d after %d", ev.Rev, rev)
			}
			rev = ev.Rev
			a.commits.Add(1)
			for _, r := range ev.Changes {
				if a.records[r.Key] = r; r.Rev == 0 {
					delete(a.records, r.Key)
				}
				if r.Key == lastKey {
					return nil
				}
			}
		}
		clear(a.records)
		recs, at, err := s.List(ctx, store.Range{})
		if err != nil && !sqlstore.Retryable(err) {
			return err
		}
		for _, r := range recs {
			if r.Key[0] == 'b' || r.Key[0] == 'h' {
				a.records[r.Key] = r
			}
		}
		rev = at
	}
}

// finish ends the watch, and compares what it yielded with what is there.
func (a *audit) finish(ctx context.Context, s *sqlstore.Store, say func(string, ...any)) error {
	if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: lastKey, Expect: store.AnyRevision}}); err != nil {
		return err
	}
	if err := <-a.finished; err != nil {
		return fmt.Errorf("the watch: %w", err)
	}
	n := 0
	for _, kind := range []string{"b", "h"} {
		recs, _, err := s.List(ctx, store.Range{From: kind, To: kind + "\xff"})
		if err != nil {
			return err
		}
		for _, r := range recs {
			if n++; a.records[r.Key] != r {
				return fmt.Errorf("the watch yielded %q at revision %d, it is at %d", r.Key, a.records[r.Key].Rev, r.Rev)
			}
		}
	}
	if n != len(a.records) {
		return fmt.Errorf("the watch yielded %d records, there are %d", len(a.records), n)
	}
	say("the watch yielded %d commits and began anew %d times; it knows all %d records", a.commits.Load(), a.relists, n)
	return nil
}
