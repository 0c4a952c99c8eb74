package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// pump brings delayed nodes back and sweeps, until ctx ends.
func (c *Controller) pump(ctx context.Context) {
	for ctx.Err() == nil {
		sweep, idle := c.queue.next()
		if sweep {
			c.sweep()
			continue
		}
		var due <-chan time.Time
		stop := func() {}
		if idle >= 0 {
			due, stop = c.Clock.NewTimer(idle)
		}
		select {
		case <-due:
		case <-c.queue.wake:
		case <-ctx.Done():
		}
		stop()
	}
}

// sweep looks for nodes that need work and has as many worked on as the queue
// takes: those of the view, and those that the engine knows and the view does not.
func (c *Controller) sweep() {
	var names []string
	seen := map[string]bool{}
	for _, n := range c.Source.List() {
		seen[n.Name] = true
		if c.needsWork(&n) {
			names = append(names, n.Name)
		}
	}
	for _, name := range c.Engine.Names() {
		if !seen[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	c.mu.Lock()
	c.stats.Sweeps++
	from := c.sweptTo
	c.mu.Unlock()
	start := sort.SearchStrings(names, from)
	stopped := ""
	for i := range names {
		name := names[(start+i)%len(names)]
		if !c.queue.offer(name) {
			stopped = name
			break
		}
	}
	c.mu.Lock()
	c.sweptTo = stopped
	c.mu.Unlock()
}

// needsWork reports whether a node of the view is not as it should be.
func (c *Controller) needsWork(n *Node) bool {
	if c.isUnsettled(n.Name) {
		return true
	}
	if len(n.Prefixes) == 0 {
		return !n.Terminating
	}
	as, _ := c.Engine.Holds(n.Name)
	return !slices.Equal(n.has(), as.Prefixes)
}

func (c *Controller) isUnsettled(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.unsettled[name]
	return ok
}

// setUnsettled notes that the node may have a record which the view does not show,
// or that it may not.
func (c *Controller) setUnsettled(name string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		c.unsettled[name] = struct{}{}
	} else {
		delete(c.unsettled, name)
	}
}

// work takes nodes from the queue until it is closed.
func (c *Controller) work(ctx context.Context) {
	for {
		it := c.queue.get()
		if it == nil {
			return
		}
		start := c.Clock.Now()
		var inWriter time.Duration
		v := c.process(ctx, it.name, &inWriter)
		total := c.Clock.Now().Sub(start)
		c.count(func(st *ControllerStats) {
			st.WriterTime += inWriter
			st.OwnTime += total - inWriter
		})
		c.queue.done(it, v)
	}
}

// process does for a node what is missing.
//
// A node is unsettled from its first write, if that succeeded or its outcome is
// unknown, until the view shows what was written or a live read says what there is.
// While it is, its prefixes are not taken back on the word of the view, which may
// be of the time before, or of an earlier node of that name.
func (c *Controller) process(ctx context.Context, name string, inWriter *time.Duration) verdict {
	n, there := c.Source.Get(name)
	if c.isUnsettled(name) {
		as, holds := c.Engine.Holds(name)
		switch {
		case there && holds && n.shows(as):
			c.setUnsettled(name, false)
		case !there || n.Terminating || len(n.Prefixes) > 0:
			return c.settle(ctx, name, inWriter)
		}
	}
	switch {
	case !there:
		c.complain(name, nil)
		c.release(name)
		return verdictDone
	case len(n.Prefixes) > 0:
		c.observe(n)
		return verdictDone
	case n.Terminating:
		c.Engine.Terminate(name)
		return verdictDone
	}
	as, err := c.Engine.Allocate(n)
	if err != nil {
		c.Report(name, err)
		return verdictFull
	}
	return c.write(ctx, n, as, inWriter)
}

func (c *Controller) observe(n Node) {
	before, _ := c.Engine.Holds(n.Name)
	c.complain(n.Name, c.Engine.Observe(n))
	if len(before.Prefixes) > 0 && !n.shows(before) {
		c.queue.promote(1)
	}
}

// complain reports what is wrong with the record of a node, if that is not what was
// wrong with it before: a node changes often, its prefixes never.
func (c *Controller) complain(name string, problems []Problem) {
	var text strings.Builder
	for _, p := range problems {
		text.WriteString(p.Err.Error())
		text.WriteByte('\n')
	}
	c.mu.Lock()
	known := c.complaints[name] == text.String()
	if len(problems) > 0 {
		c.complaints[name] = text.String()
	} else {
		delete(c.complaints, name)
	}
	c.mu.Unlock()
	for _, p := range problems {
		if !known {
			c.Report(p.Node, p.Err)
		}
	}
}

// release takes back what a node holds and lets one that waits for space try.
func (c *Controller) release(name string) {
	if c.Engine.Release(name) {
		c.queue.promote(1)
	}
}

// write has the assignment recorded: some attempts one after another, and then,
// unless all of them certainly failed, a look at what came of them.
func (c *Controller) write(ctx context.Context, n Node, as Assignment, inWriter *time.Duration) verdict {
	var err error
	for range c.Attempts {
		start := c.Clock.Now()
		err = c.Writer.Write(ctx, n, as)
		*inWriter += c.Clock.Now().Sub(start)
		definite := errors.Is(err, ErrRejected) || errors.Is(err, ErrGone)
		c.count(func(st *ControllerStats) {
			switch {
			case err == nil:
				st.Assigned++
			case definite:
				st.Rejected++
			default:
				st.Unknown++
			}
		})
		if !definite { // it is recorded, or may be
			c.setUnsettled(n.Name, true)
		}
		if err == nil {
			return verdictDone
		}
		if errors.Is(err, ErrGone) || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return verdictRetry // nobody will; what was written is for the next one to see
	}
	if c.isUnsettled(n.Name) {
		c.Report(n.Name, fmt.Errorf("write %v: %w: %w", as.Prefixes, ErrUnknownOutcome, err))
		return c.settle(ctx, n.Name, inWriter)
	}
	c.Report(n.Name, fmt.Errorf("write %v: %w", as.Prefixes, err))
	c.release(n.Name)
	return verdictRetry
}

// settle asks what a node has, which is not clear from the view, after the last
// attempt to write to it. Until the answer it keeps what it holds.
func (c *Controller) settle(ctx context.Context, name string, inWriter *time.Duration) verdict {
	c.count(func(st *ControllerStats) { st.Reads++ })
	start := c.Clock.Now()
	n, err := c.Writer.Read(ctx, name)
	*inWriter += c.Clock.Now().Sub(start)
	switch {
	case errors.Is(err, ErrGone):
		c.setUnsettled(name, false)
		c.release(name)
		// The view may not know yet. If it then says that there is a node, it is
		// another one, or the view is late and the next write fails for certain.
		return verdictDone
	case err != nil:
		c.Report(name, fmt.Errorf("read: %w: %w", ErrUnknownOutcome, err))
		return verdictRetry
	}
	c.setUnsettled(name, false)
	switch {
	case len(n.Prefixes) > 0:
		c.observe(n)
		return verdictDone
	case n.Terminating:
		c.Engine.Terminate(name)
		return verdictDone
	}
	return verdictRetry // with the same prefixes
}
