package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// subject is a store with what it stands on.
type subject struct {
	place     string
	processes int
	faults    []fault // beside those of every store
	close     func() error
	omitted   error // why the disk of the store is never full
}

// fault does something to a store's processes or to what the store stands on; hold is how long it lasts.
type fault struct {
	name string
	do   func(ctx context.Context, on []*remote, hold time.Duration) error
}

// subjects is the table of stores and of what happens to them.
var subjects = map[string]func(ctx context.Context) (*subject, error){
	"bolt":     onBolt,
	"sqlite":   onSQLite,
	"postgres": onPostgres,
	"etcd":     onEtcd,
	"kube":     onKube,
}

// ofEveryStore returns the faults of the processes.
func ofEveryStore(random *rand.Rand) []fault {
	one := func(name string, do func(ctx context.Context, r *remote, hold time.Duration) error) fault {
		return fault{name, func(ctx context.Context, on []*remote, hold time.Duration) error {
			return do(ctx, on[random.IntN(len(on))], hold)
		}}
	}
	killed := func(name string, when moment) fault {
		return one(name, func(ctx context.Context, r *remote, _ time.Duration) error {
			for r.die.Store(int32(when)); r.die.Load() != int32(never) && ctx.Err() == nil; {
				wait(ctx, time.Millisecond)
			}
			return nil
		})
	}
	return []fault{
		one("process killed", func(_ context.Context, r *remote, _ time.Duration) error { r.kill(); return nil }),
		killed("process killed before a commit", before),
		killed("process killed during a commit", during),
		killed("process killed after a commit", after),
		one("process stopped", func(ctx context.Context, r *remote, hold time.Duration) error {
			err := r.signal(syscall.SIGSTOP)
			wait(ctx, hold)
			return errors.Join(err, r.signal(syscall.SIGCONT))
		}),
	}
}

// wait returns after a time, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// lasting is a fault that begins, holds and ends.
func lasting(name string, begin, end func(context.Context) error) fault {
	return fault{name, func(ctx context.Context, _ []*remote, hold time.Duration) error {
		if err := begin(ctx); err != nil {
			return err
		}
		wait(ctx, hold)
		return end(ctx)
	}}
}

// onDisk has open make a subject in a directory that is a disk of its own, and adds the fault that the disk is full. recover is
// what an operator does when there is room again; it may be nil.
func onDisk(bytes int, open func(dir string) (*subject, error), recover func(context.Context) error) (*subject, error) {
	dir, err := os.MkdirTemp("", "torture-stores-")
	if err != nil {
		return nil, err
	}
	mounted := mount(dir, bytes)
	if mounted != nil && !errors.Is(mounted, errNoDisk) {
		return nil, mounted
	}
	remove := func() error {
		if mounted == nil {
			return errors.Join(unmount(dir), os.RemoveAll(dir))
		}
		return os.RemoveAll(dir)
	}
	s, err := open(dir)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	closeStore := s.close
	s.close = func() error { return errors.Join(closeStore(), remove()) }
	if s.omitted = mounted; mounted == nil {
		ballast := filepath.Join(dir, "ballast")
		s.faults = append(s.faults, lasting("disk full", func(context.Context) error { return fill(ballast) }, func(ctx context.Context) error {
			if err := os.Remove(ballast); err != nil || recover == nil {
				return err
			}
			return recover(ctx)
		}))
	}
	return s, nil
}

// fill writes a file until the disk has no room for another page.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, zeroes{})
	if err = errors.Join(err, f.Close()); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk is not full: %w", err)
	}
	return nil
}

// zeroes never ends.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
