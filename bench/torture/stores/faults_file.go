package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// fileDisk is how much a file store may take.
const fileDisk = 64 << 20

func onBolt(context.Context) (*subject, error) {
	return onDisk(fileDisk, func(dir string) (*subject, error) {
		path := filepath.Join(dir, "store.db")
		seized := func(name string, do func(*bbolt.DB) error) fault {
			return fault{name, func(ctx context.Context, on []*remote, hold time.Duration) error {
				return seize(ctx, path, on, hold, do)
			}}
		}
		return &subject{place: path, processes: 1, close: func() error { return nil }, faults: []fault{
			seized("file locked by another process", func(*bbolt.DB) error { return nil }),
			seized("pages of a commit torn", tear),
		}}, nil
	}, nil)
}

// seize kills the process that has a file, opens the file before another process does, and has it for some time.
func seize(ctx context.Context, path string, on []*remote, hold time.Duration, do func(*bbolt.DB) error) error {
	for ctx.Err() == nil {
		on[0].kill()
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		if errors.Is(err, bolterrors.ErrTimeout) { // the next process was faster
			continue
		}
		if err != nil {
			return err
		}
		err = do(db)
		wait(ctx, hold)
		return errors.Join(err, db.Close())
	}
	return ctx.Err()
}

// tear writes half of each page that the last commit does not use: what a power cut leaves of the commit after it.
func tear(db *bbolt.DB) error {
	f, err := os.OpenFile(db.Path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size := db.Info().PageSize
	torn, half := 0, make([]byte, size/2)
	for i := range half {
		half[i] = 0xa5
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for id := 2; ; id++ {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return err
			}
			if page.Type == "free" {
				torn++
				_, err = f.WriteAt(half, int64(id)*int64(size))
			}
			if err != nil {
				return err
			}
		}
	})
	if err == nil && torn == 0 {
		err = errors.New("no page is free")
	}
	return err
}

func onSQLite(context.Context) (*subject, error) {
	return onDisk(fileDisk, func(dir string) (*subject, error) {
		place := "file:" + filepath.Join(dir, "store.sqlite")
		db, err := sql.Open("sqlite", place+"?_pragma=busy_timeout(20000)")
		if err != nil {
			return nil, err
		}
		var conn *sql.Conn
		locked := lasting("file locked by another program", func(ctx context.Context) (err error) {
			if conn, err = db.Conn(ctx); err == nil {
				_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
			}
			return err
		}, func(ctx context.Context) error {
			_, err := conn.ExecContext(ctx, "ROLLBACK")
			if err = errors.Join(err, conn.Close()); err != nil {
				err = fmt.Errorf("give the lock back: %w", err)
			}
			return err
		})
		return &subject{place: place, processes: 3, close: db.Close, faults: []fault{locked}}, nil
	}, nil)
}
