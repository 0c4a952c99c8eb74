package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func (a *app) serveCommand() *cobra.Command {
	var listen string
	var interval time.Duration
	c := &cobra.Command{
		Use: "serve", Args: cobra.NoArgs,
		Short: "Show the store on a page for a browser, on this machine alone",
		Long: "serve prints the name of a page and shows it until Ctrl-C: the pools, a map to click into, who has an address, what a handle or\n" +
			"a host has, and the latest changes. It writes nothing, listens on a loopback address alone, and answers only under a path that\n" +
			"nobody can guess, because other users of the machine reach a loopback address as well. Of a bbolt file it reads a new copy\n" +
			"when the file has changed; other stores deliver their changes. It shows the space that --space names.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			err := a.serve(ctx, listen, interval)
			if ctx.Err() != nil {
				return nil // a signal, or --timeout, is how it ends
			}
			return err
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "the loopback `ADDRESS` and port; port 0 is one that is free")
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often a bbolt file is looked at")
	return c
}

func (a *app) serve(ctx context.Context, listen string, interval time.Duration) error {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || !at.Addr().IsLoopback() {
		return fail(exitUsage, "--listen %s: an address of this machine alone is needed, such as 127.0.0.1:8000", listen)
	}
	p := &page{app: a, told: make(chan struct{})}
	defer p.close()
	if err := p.reopen(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fail(exitUnavailable, "%v", err)
	}
	path := "/" + rand.Text() + "/"
	srv := &http.Server{Handler: p.handler(path), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { p.follow(ctx, interval) })
	if _, err := fmt.Fprintf(a.stdout, "http://%v%s\n", l.Addr(), path); err != nil {
		l.Close()
		return err
	}
	a.quiet = true // what there is to say of the store has been said
	return srv.Serve(l)
}

// page is what the browsers see: an engine that cannot write, and what has changed since the start.
type page struct {
	*app
	reading sync.RWMutex // held for writing while the engine is replaced
	db      *source
	at      store.Store // db, without its commits
	e       *ipset.Engine

	mu     sync.Mutex
	rev    uint64 // counts what the page has seen
	fault  string // why it sees no changes
	latest []changeView
	told   chan struct{} // closed when rev or fault change
	guests int           // browsers that wait for changes
}

// readOnly is a store that refuses commits.
type readOnly struct{ store.Store }

// Commit implements store.Store.
func (readOnly) Commit(context.Context, []store.Op) (uint64, error) {
	return 0, fmt.Errorf("the page writes nothing: %w", ipalloc.ErrMismatch)
}

// reopen opens the store, or a new copy of a file, in place of the one that is open.
func (p *page) reopen(ctx context.Context) error {
	db, err := p.open(ctx, reading)
	if err != nil {
		return err
	}
	at := readOnly{db}
	e, err := p.engine(at)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	old := p.db
	if p.db, p.at, p.e = db, at, e; old != nil {
		return old.Close()
	}
	return nil
}

func (p *page) close() {
	p.reading.Lock()
	defer p.reading.Unlock()
	if p.db != nil {
		p.db.Close()
	}
}

// mostLatest is how many changes the page keeps.
const mostLatest = 100

// tell wakes the browsers.
func (p *page) tell(fault error, changes ...changeView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rev++
	p.fault = ""
	if fault != nil {
		p.fault = fault.Error()
	}
	p.latest = append(p.latest, changes...)
	p.latest = p.latest[max(0, len(p.latest)-mostLatest):]
	close(p.told)
	p.told = make(chan struct{})
}

// follow tells what changes until ctx ends. It goes on after an error, such as a database that restarts.
func (p *page) follow(ctx context.Context, interval time.Duration) {
	for ctx.Err() == nil {
		err := p.followFile(ctx, interval)
		if p.db.location.Kind != "bolt" {
			err = p.followStore(ctx)
		}
		if ctx.Err() == nil {
			p.tell(err)
			_ = wait(ctx, max(interval, time.Second))
		}
	}
}

// followStore tells the changes that the store delivers.
func (p *page) followStore(ctx context.Context) error {
	rest := &follower{app: p.app, db: p.db, f: func(...changeView) error { return nil }}
	if err := rest.look(ctx); err != nil {
		return err
	}
	rest.f = func(changes ...changeView) error {
		if len(changes) > 0 {
			p.tell(nil, changes...)
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { cancel(rest.follow(ctx)) })
	defer wg.Wait()
	defer cancel(nil)
	for c, err := range p.e.Changes(ctx, 0) {
		if err != nil {
			return err
		}
		var changes []changeView
		for _, ch := range c.Changes {
			if !c.Present {
				v := changeOf(c.Rev, ch)
				v.Time = timeText(p.now())
				changes = append(changes, v)
			}
		}
		if len(changes) > 0 || c.Present && !c.More {
			p.tell(nil, changes...)
		}
	}
	return context.Cause(ctx)
}

// followFile reads a bbolt file again when it has changed, and does nothing for other stores.
func (p *page) followFile(ctx context.Context, interval time.Duration) error {
	if p.db.location.Kind != "bolt" {
		return nil
	}
	var seen os.FileInfo
	for {
		is, err := os.Stat(p.db.location.Path)
		switch {
		case err != nil:
			return err
		case seen == nil || is.ModTime() != seen.ModTime() || is.Size() != seen.Size():
			if err := p.reopen(ctx); err != nil {
				return err
			}
			p.tell(nil)
		}
		seen = is
		if err := wait(ctx, interval); err != nil {
			return err
		}
	}
}
