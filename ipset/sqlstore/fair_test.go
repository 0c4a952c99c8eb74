package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Sixteen equal writers, each on a pool of its own: when all together have made a number of commits, none has made less than a
// third of what any other has.
func TestFair(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		const writers, total = 16, 16 * 60
		made := make([]int, writers)
		var all atomic.Int64
		var ready, done sync.WaitGroup
		start := make(chan struct{})
		for w := range writers {
			db := reopen()
			s := openIn(t, db, Options{})
			if w%2 == 0 && s.file != nil { // half of them with the waits of SQLite's own
				db.SetMaxOpenConns(1)
				run(t, db, "PRAGMA busy_timeout = 10000")
			}
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-start
				for all.Load() < total {
					if _, err := s.Commit(context.Background(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(w), Expect: store.AnyRevision}}); err != nil {
						t.Error(err)
						return
					}
					made[w]++
					all.Add(1)
				}
			})
		}
		ready.Wait()
		close(start)
		done.Wait()
		slices.Sort(made)
		t.Logf("commits of each: %v", made)
		if made[0]*3 < made[writers-1] {
			t.Errorf("commits of each writer: %v", made)
		}
	})
}
