package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ipalloc/ipalloc/examples/internal/podnet"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// patience is how long the program tries to get through to a store that does not answer.
const patience = time.Minute

// replay opens the store, goes on with what it holds, and says what came of it.
func replay(ctx context.Context, cfg *config, stdout, stderr io.Writer) (err error) {
	store, closeStore, err := open(ctx, cfg.store, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	r := &runner{cfg: cfg, log: stderr, told: time.Now()}
	err = r.patiently(ctx, func() error {
		r.net, err = podnet.Open(ctx, store, cfg.net)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s: %d of %d events are done\n", cfg.store, r.net.Next(), len(cfg.net.Events))
	if err := r.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s: all events are done; in this run, blocks: %v\n", cfg.store, r.net.Counts())
	return r.report(ctx, stdout)
}

// runner sees the events through.
type runner struct {
	cfg  *config
	net  *podnet.Network
	log  io.Writer
	told time.Time // when progress was told last
}

func (r *runner) run(ctx context.Context) error {
	for r.net.Next() < len(r.cfg.net.Events) {
		err := r.patiently(ctx, func() error { return r.net.Run(ctx, r.net.Next()+1) })
		if err != nil {
			return err
		}
		r.tell()
		if err := wait(ctx, r.cfg.pace); err != nil {
			return err
		}
	}
	return nil
}

// patiently asks a store that does not answer, or whose answer was lost, again: the request keys of
// package podnet make that safe, whatever had become of the first time.
func (r *runner) patiently(ctx context.Context, ask func() error) error {
	giveUp := time.Now().Add(patience)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := ask()
		if err == nil || ctx.Err() != nil || !store.Retryable(err) || time.Now().After(giveUp) {
			return err
		}
		fmt.Fprintf(r.log, "%s: trying again: %v\n", r.cfg.store, err)
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait waits, or returns the error of ctx when that ends first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell says how far it is: every second, or after each event if that was asked for.
func (r *runner) tell() {
	n := r.net.Next()
	if r.cfg.events {
		e := r.cfg.net.Events[n-1]
		what := "goes from"
		if e.Comes {
			what = "comes to"
		}
		fmt.Fprintf(r.log, "event %d of %d: pod %s %s node %s %v\n", n, len(r.cfg.net.Events), e.Pod.Name, what, e.Node, r.net.Addresses(e.Pod.Name))
		return
	}
	if now := time.Now(); now.Sub(r.told) >= time.Second {
		r.told = now
		fmt.Fprintf(r.log, "event %d of %d\n", n, len(r.cfg.net.Events))
	}
}

// report compares everything, and writes the summary.
func (r *runner) report(ctx context.Context, w io.Writer) error {
	if err := r.net.Verify(ctx, "at the end"); err != nil {
		return err
	}
	var out bytes.Buffer
	r.net.Describe(&out, r.cfg.source, r.cfg.place.String())
	fmt.Fprintln(&out, "verified   from what the pods were told: nobody without, nothing twice, nothing left behind; and Check found nothing")
	if err := r.net.End(ctx, &out, addrmap.TextStyle{ASCII: r.cfg.ascii}); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}
