package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/torture/oracle"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A former is a store that is set back to older data under its processes.
type former struct {
	opener, place string // as of a child
	processes     int
	save, back    func(context.Context) error
	ruined        bool // what is left is no store
	close         func() error
}

// answered notes a call that was begun after its process lost its past, and that the store answered all the same.
func (r *remote) answered(lost int64, method string, a *Answer) {
	if lost == 0 || int64(a.Process) != lost || a.Err != "" && a.Conflict == "" || method == "Limits" || method == "Watch" || method == "Next" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Errorf("%s was answered after the store was set back: revision %d, conflict %q", method, a.Rev, a.Conflict))
}

// process returns the number of the present child, 0 if there is none.
func (r *remote) process() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return 0
	}
	return int64(r.cmd.Process.Pid)
}

// setBack has a store set back to older data while calls of all kinds are in flight: commits, lists, watches, sweeps, and
// assignments of engines. From then on a process that saw a lost commit gets ErrReplaced from each call that it begins, and nothing
// else, if it does not die. A process that opens the store then finds a consistent one.
func setBack(ctx context.Context, name string, c config, say func(string, ...any)) (err error) {
	f, err := formers[name](ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	on, engines, err := f.start(ctx)
	for _, r := range on {
		defer r.close()
	}
	if err != nil {
		return err
	}
	end := load(ctx, on, engines, c)
	defer end()
	wait(ctx, c.Hold)
	if err := f.save(ctx); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	wait(ctx, c.Hold)
	commit := func(r *remote) error {
		return patient(func() error {
			_, err := r.Commit(ctx, []store.Op{{Kind: store.Put, Key: "~lost", Expect: store.AnyRevision}})
			return err
		})
	}
	for _, r := range on { // a commit of each that is lost
		if err := commit(r); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	before := make([]int64, len(on))
	for i, r := range on {
		before[i] = r.process()
	}
	if err := f.back(ctx); err != nil {
		return fmt.Errorf("set back: %w", err)
	}
	for i, r := range on {
		r.lost.Store(before[i])
	}
	wait(ctx, 2*c.Hold)
	died := 0
	for i, r := range on {
		var err error
		if r.process() == before[i] {
			err = commit(r)
		}
		if r.process() != before[i] {
			died++
		} else if !errors.Is(err, ipalloc.ErrReplaced) {
			return fmt.Errorf("a process that saw what is lost: %w", cmpError(err))
		}
	}
	end()
	var wrong []error
	for _, r := range on {
		r.close()
		wrong = append(wrong, r.wrong[:min(len(r.wrong), 3)]...)
	}
	say("%-16s %d processes ended with ErrReplaced, %d died", name, len(on)-died, died)
	return errors.Join(append(wrong, sound(ctx, f, say))...)
}

// start starts the processes, with an engine on each.
func (f *former) start(ctx context.Context) (on []*remote, engines []*ipset.Engine, err error) {
	for range f.processes {
		r, err := newRemote(f.opener, f.place)
		if err != nil {
			return on, nil, err
		}
		on = append(on, r)
		e, err := ipset.New(r, ipset.Options{Retry: ipset.Retry{Attempts: 50}})
		if err != nil {
			return on, nil, err
		}
		engines = append(engines, e)
	}
	err = patient(func() error {
		return engines[0].AddPool(ctx, alloc.Pool{Name: "p", Prefix: pool, BlockBits: 28})
	})
	if errors.Is(err, ipalloc.ErrExists) {
		err = nil
	}
	return on, engines, err
}

// cmpError returns an error in place of none.
func cmpError(err error) error {
	if err == nil {
		return errors.New("its commit was made")
	}
	return err
}

// sound verifies the store that is left.
func sound(ctx context.Context, f *former, say func(string, ...any)) error {
	r, err := newRemote(f.opener, f.place)
	if err != nil && (f.ruined || f.opener == "bolt") {
		say("%-16s opened again: refused", "")
		return nil
	}
	if err != nil {
		return err
	}
	defer r.close()
	e, err := ipset.New(oracle.Rest(r), ipset.Options{})
	if err != nil {
		return err
	}
	return patient(func() error {
		rep, err := e.Operator().Check(ctx, nil)
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("the store that is left: %v", rep.Problems)
		}
		return err
	})
}

// patient repeats a call for as long as its error says that this can help, and a minute at most.
func patient(f func() error) (err error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil || time.Now().After(end) || !store.Retryable(err) && !errors.Is(err, ipalloc.ErrClosed) {
			return err
		}
	}
}

// load uses a store in all ways until the function that it returns is called.
func load(ctx context.Context, on []*remote, engines []*ipset.Engine, c config) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i, r := range on {
		group.Go(func() { oracle.Follow(ctx, r) })
		group.Go(func() { _ = sweep(ctx, engines[i], stop) }) // ends with the past of its process
		for j := range c.Callers {
			group.Go(func() { oracle.Torment(r, c.Seed, uint64(i*c.Callers+j), stop) })
			group.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					handle := fmt.Sprint(i, "-", j, "-", n)
					if _, err := engines[i].Assign(ctx, alloc.HostOwner(fmt.Sprint("h", i)), handle); err != nil {
						wait(ctx, 5*time.Millisecond)
					} else if n%4 > 0 {
						_, _ = engines[i].ReleaseByHandle(ctx, handle)
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() {
		close(stop)
		cancel()
		group.Wait()
	})
}

// directory returns a former whose place is a file in a directory of its own, which is removed in the end.
func directory(opener, file string, f func(path string) (save, back func(context.Context) error)) (*former, error) {
	dir, err := os.MkdirTemp("", "past-") // the path of a socket is short
	if err != nil {
		return nil, err
	}
	save, back := f(dir + "/" + file)
	return &former{opener: opener, place: dir + "/" + file, processes: 1, save: save, back: back, close: func() error { return os.RemoveAll(dir) }}, nil
}
