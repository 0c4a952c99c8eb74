package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// follow sends what a watch yields to a channel, until the test ends.
func follow(t *testing.T, s *Store, after uint64) <-chan store.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	events, done := make(chan store.Event, 1000), make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		for ev, err := range s.Watch(ctx, after, "") {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			events <- ev
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return events
}

// A watch sees the commits that another process makes. With a poll of a minute they come by a notification.
func TestWatchOtherProcess(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		o := Options{Poll: time.Millisecond}
		s := openIn(t, reopen(), o)
		if s.file == nil {
			o.Poll = time.Minute
			s = openIn(t, reopen(), o)
		}
		other := openIn(t, reopen(), Options{})
		events := follow(t, s, 0)
		for i := range 20 {
			rev := put(t, other, fmt.Sprint(i), "")
			if i == 0 && s.file == nil { // the session that listens may be younger than the commit
				for listening := 0; listening == 0; time.Sleep(time.Millisecond) {
					if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%ipalloc%'").Scan(&listening); err != nil {
						t.Fatal(err)
					}
				}
				rev = put(t, other, "again", "")
				<-events
			}
			if ev := <-events; ev.Rev != rev {
				t.Fatalf("revision %d, want %d", ev.Rev, rev)
			}
		}
	})
}

// A watch goes on after the server was stopped at once and started again.
func TestWatchSurvives(t *testing.T) {
	server := servers.NewPostgres(t, servers.PostgresOptions{NoSync: true})
	s := openIn(t, connect(t, "pgx", server.DSN()), Options{Poll: 10 * time.Millisecond})
	events := follow(t, s, 0)
	for i := range 3 {
		rev := put(t, s, fmt.Sprint(i), "")
		if ev := <-events; ev.Rev != rev {
			t.Fatalf("revision %d, want %d", ev.Rev, rev)
		}
		server.Stop()
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Changes older than the history are removed, and a watch that needs them ends.
func TestHistory(t *testing.T) {
	each(t, func(t *testing.T, reopen func() *sql.DB) {
		s := openIn(t, reopen(), Options{History: 10})
		var revs []uint64
		for range 200 {
			revs = append(revs, put(t, s, "a", ""))
		}
		var changes int
		if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM ipalloc_changes").Scan(&changes); err != nil || changes > 10+compactEvery {
			t.Errorf("%d changes are kept, %v", changes, err)
		}
		for _, err := range s.Watch(t.Context(), revs[99], "") {
			if !errors.Is(err, ipalloc.ErrOutOfRange) {
				t.Errorf("%v", err)
			}
		}
		for ev, err := range s.Watch(t.Context(), revs[194], "") {
			if err != nil || ev.Rev != revs[195] {
				t.Errorf("%v, %v", ev, err)
			}
			break
		}
	})
}

// Changes come in any order from the database, and in commit order from a watch.
func TestEventsInOrder(t *testing.T) {
	recs := []store.Record{{Key: "b", Rev: 9}, {Key: "z", Rev: 2}, {Key: "a", Rev: 9}, {Key: "c"}}
	got := events(recs, []uint64{9, 2, 9, 5})
	want := []store.Event{
		{Rev: 2, Changes: []store.Record{{Key: "z", Rev: 2}}},
		{Rev: 5, Changes: []store.Record{{Key: "c"}}},
		{Rev: 9, Changes: []store.Record{{Key: "a", Rev: 9}, {Key: "b", Rev: 9}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A watch that has seen everything asks no more until it is woken.
func TestWatchIdles(t *testing.T) {
	db, w := wired(t, postgresSchema(t))
	s := openIn(t, db, Options{Poll: time.Hour})
	put(t, s, "a", "")
	events := follow(t, s, 0)
	<-events
	w.arm(0, 0)
	const commits = 30
	for range commits {
		put(t, s, "a", "")
		<-events
	}
	// A commit, its notification and its wake-up: a question for each.
	if n := w.count(); n > 3*commits+20 {
		t.Errorf("%d round trips for %d commits and their events", n, commits)
	}
}

// A watch goes on when its database was renamed away for a moment, and back.
func TestWatchWhileTheDatabaseIsAway(t *testing.T) {
	server := servers.NewPostgres(t, servers.PostgresOptions{NoSync: true})
	admin := connect(t, "pgx", server.DSN())
	run(t, admin, "CREATE DATABASE there")
	s := openIn(t, connect(t, "pgx", server.DSN()+" dbname=there"), Options{Poll: 10 * time.Millisecond})
	events := follow(t, s, 0)
	for i := range 3 {
		rev := put(t, s, fmt.Sprint(i), "")
		if ev := <-events; ev.Rev != rev {
			t.Fatalf("revision %d, want %d", ev.Rev, rev)
		}
		run(t, admin, "ALTER DATABASE there ALLOW_CONNECTIONS false", "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'there'",
			"ALTER DATABASE there RENAME TO away")
		time.Sleep(100 * time.Millisecond) // the watch asks
		run(t, admin, "ALTER DATABASE away RENAME TO there", "ALTER DATABASE there ALLOW_CONNECTIONS true")
	}
}
