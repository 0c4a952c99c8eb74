package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	socket "github.com/ipalloc/ipalloc/ipset/store/remote"
)

// formers is the table of stores and of the ways in which they are set back.
var formers = map[string]func(ctx context.Context) (*former, error){
	"bolt, replaced": ofBolt(func(path, saved string) error { return os.Rename(saved, path) }),
	"bolt, overwritten": ofBolt(func(path, saved string) error { // as dd conv=notrunc and rsync --inplace do
		data, err := os.ReadFile(saved)
		if err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(data, 0)
		return errors.Join(err, file.Close())
	}),
	"bolt, copied over": ofBolt(func(path, saved string) error { // as cp does, which cuts the file off first
		data, err := os.ReadFile(saved)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	}),
	"bolt, cut off": func(ctx context.Context) (*former, error) {
		f, err := ofBolt(func(path, _ string) error { return os.Truncate(path, 8<<10) })(ctx)
		if err == nil {
			f.ruined = true
		}
		return f, err
	},
	"sqlite":   formerSQLite,
	"postgres": formerPostgres,
	"etcd":     formerEtcd,
	"kube":     formerKube,
	"socket":   formerSocket,
}

// ofBolt returns a former in a file of bbolt.
func ofBolt(back func(path, saved string) error) func(context.Context) (*former, error) {
	return func(context.Context) (*former, error) {
		return directory("bolt", "store.db", func(path string) (func(context.Context) error, func(context.Context) error) {
			return func(ctx context.Context) error { return boltstore.Snapshot(ctx, path, path+".saved") },
				func(context.Context) error { return back(path, path+".saved") }
		})
	}
}

// tables saves the tables of a store in SQL, and puts their rows back in one transaction, as pg_restore --clean does. The texts first come before both.
func tables(driver, dsn string, first ...string) (save, back func(context.Context) error) {
	each := func(texts ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			db, err := sql.Open(driver, dsn)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			for _, text := range first {
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
			}
			for _, table := range []string{"meta", "records", "changes"} { // the first one is what a commit locks
				for _, text := range texts {
					if _, err := tx.ExecContext(ctx, fmt.Sprintf(text, table)); err != nil {
						return fmt.Errorf(text+": %w", table, err)
					}
				}
			}
			return tx.Commit()
		}
	}
	return each("CREATE TABLE saved_%[1]s AS SELECT * FROM ipalloc_%[1]s"),
		each("DELETE FROM ipalloc_%[1]s", "INSERT INTO ipalloc_%[1]s SELECT * FROM saved_%[1]s")
}

func formerSQLite(context.Context) (*former, error) {
	f, err := directory("sqlite", "store.sqlite", func(path string) (func(context.Context) error, func(context.Context) error) {
		return tables("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_txlock=immediate")
	})
	if err == nil {
		f.place, f.processes = "file:"+f.place, 2
	}
	return f, err
}

func formerPostgres(ctx context.Context) (*former, error) {
	server, err := servers.StartPostgres(ctx, servers.PostgresOptions{NoSync: true})
	if err != nil {
		return nil, err
	}
	dsn := server.DSN() + " default_transaction_isolation='repeatable read'"
	save, _ := tables("pgx", dsn)
	_, back := tables("pgx", dsn, "LOCK TABLE ipalloc_meta IN EXCLUSIVE MODE") // else a commit after the snapshot refuses the DELETE
	return &former{opener: "postgres", place: server.DSN(), processes: 2, save: save, back: back, close: server.Close}, nil
}

// dataDir saves the directory of a member, and puts it back, while nothing runs.
func dataDir(e *servers.Etcd, stop func(), start func(context.Context) error) (save, back func(context.Context) error, remove func() error) {
	m := e.Members()[0]
	saved := filepath.Clean(m.DataDir()) + ".saved"
	while := func(f func() error) func(context.Context) error {
		return func(ctx context.Context) error {
			stop()
			m.Kill()
			if err := f(); err != nil {
				return err
			}
			if err := e.Start(ctx); err != nil {
				return err
			}
			return start(ctx)
		}
	}
	return while(func() error { return os.CopyFS(saved, os.DirFS(m.DataDir())) }), while(func() error {
		return errors.Join(os.RemoveAll(m.DataDir()), os.CopyFS(m.DataDir(), os.DirFS(saved)))
	}), func() error { return os.RemoveAll(saved) }
}

func formerEtcd(ctx context.Context) (*former, error) {
	c, err := servers.StartEtcd(ctx, servers.EtcdOptions{NoSync: true})
	if err != nil {
		return nil, err
	}
	save, back, remove := dataDir(c, func() {}, func(context.Context) error { return nil })
	return &former{opener: "etcd", place: strings.Join(c.Endpoints(), ","), processes: 2, save: save, back: back,
		close: func() error { return errors.Join(c.Close(), remove()) }}, nil
}

func formerKube(ctx context.Context) (*former, error) {
	server, err := servers.StartKube(ctx, servers.KubeOptions{})
	if err != nil {
		return nil, err
	}
	if err := define(ctx, server); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	save, back, remove := dataDir(server.Etcd, server.Kill, server.Start)
	return &former{opener: "kube", place: server.URL + " " + server.Token, processes: 2, save: save, back: back,
		close: func() error { return errors.Join(server.Close(), remove()) }}, nil
}

// formerSocket is a file of bbolt behind a service, which ends and is started again, on older data in the end.
func formerSocket(ctx context.Context) (*former, error) {
	var path string
	var end func() error
	serve := func() error {
		db, err := boltstore.Open(ctx, path+".db", boltstore.Options{NoSync: true})
		if err != nil {
			return err
		}
		served, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- socket.Serve(served, path, db) }()
		end = func() error {
			cancel()
			return errors.Join(<-done, db.Close())
		}
		return nil
	}
	f, err := directory("socket", "s", func(at string) (func(context.Context) error, func(context.Context) error) {
		path = at
		return func(ctx context.Context) error {
				return errors.Join(end(), boltstore.Snapshot(ctx, path+".db", path+".saved"), serve())
			}, func(context.Context) error {
				return errors.Join(end(), os.Rename(path+".saved", path+".db"), serve())
			}
	})
	if err != nil {
		return nil, err
	}
	if err := serve(); err != nil {
		return nil, err
	}
	f.processes = 2
	remove := f.close
	f.close = func() error { return errors.Join(end(), remove()) }
	return f, nil
}
