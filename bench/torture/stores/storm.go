package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ipalloc/ipalloc/bench/torture/oracle"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// process is a worker that may be killed at any moment, and is started again.
type process struct {
	name, place string
	config
	index, starts int

	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when its log is read

	mu      *sync.Mutex // of the maps, which all processes share
	calls   map[string]oracle.Call
	watches map[string]*oracle.Watch
	failed  error
}

// start begins a worker whose name no earlier one had.
func (p *process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.starts++
	name := fmt.Sprintf("%d-%d", p.index, p.starts)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\t%s\t%s\t%d\t%d", workerEnv, p.name, p.place, name, p.Seed+uint64(p.starts), p.Callers))
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.read = make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		calls, watches := make(map[string]oracle.Call), make(map[string]*oracle.Watch)
		err := oracle.Read(out, calls, watches)
		p.mu.Lock()
		defer p.mu.Unlock()
		maps.Copy(p.calls, calls)
		maps.Copy(p.watches, watches)
		p.failed = errors.Join(p.failed, err)
	}(p.read)
	return nil
}

// end ends a worker, at once or when it has its answers.
func (p *process) end(kill bool) {
	if kill {
		_ = p.cmd.Process.Kill()
	} else {
		_ = p.stdin.Close()
	}
	<-p.read
	_ = p.cmd.Wait()
}

// storm torments a store and verifies what was seen.
func storm(ctx context.Context, name string, c config, say func(string, ...any)) error {
	s, err := subjects[name](ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	if place := name; s.processes > 1 { // made before many open it at once, so that the storm is about the rest
		if _, err := open(ctx, place, s.place); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	calls, watches := make(map[string]oracle.Call), make(map[string]*oracle.Watch)
	var ps []*process
	for i := range s.processes {
		p := &process{name: name, place: s.place, config: c, index: i, mu: &mu, calls: calls, watches: watches}
		if err := p.start(); err != nil {
			return err
		}
		defer func() { p.end(true) }()
		ps = append(ps, p)
	}
	times, err := torment(ctx, s, workers(ps), c)
	for _, p := range ps {
		p.end(false)
		err = errors.Join(err, p.failed)
	}
	if err == nil {
		calls["final"], err = final(ctx, name, s.place)
	}
	if err != nil {
		return err
	}
	all, followed, counts := summary(calls, watches)
	count(say, name, times)
	say("%-9s %d calls: %v; %d watches", name, len(all), counts, len(followed))
	say("tried: %d calls", len(all))
	if counts["commit done"] < 10 {
		return errors.New("next to nothing was done")
	}
	return oracle.Check(all, followed)
}

// final lists everything when no worker runs any more. It has the mark of every commit that was made, also of those at the end
// that no watch and no caller has heard of.
func final(ctx context.Context, name, place string) (oracle.Call, error) {
	s, err := open(ctx, name, place)
	if err != nil {
		return oracle.Call{}, err
	}
	if c, ok := s.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	c := oracle.Call{ID: "final", Kind: oracle.List, Begin: time.Now().UnixNano(), Outcome: oracle.Done}
	for {
		if c.Records, c.Rev, err = s.List(ctx, c.Range); err == nil || !store.Retryable(err) {
			c.End = time.Now().UnixNano()
			return c, err
		}
	}
}

// count says how often each fault was had.
func count(say func(string, ...any), name string, times map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(times)) {
		say("%-9s %4d x %s", name, times[what], what)
	}
}

// victims are processes that can be killed, stopped and let go on.
type victims interface {
	count() int
	kill(i int) error
	signal(i int, stop bool) error
}

// workers are victims that are started again at once.
type workers []*process

func (w workers) count() int { return len(w) }

func (w workers) kill(i int) error {
	w[i].end(true)
	return w[i].start()
}

func (w workers) signal(i int, stop bool) error { return sendStop(w[i].cmd.Process, stop) }

// sendStop stops a process, or lets it go on.
func sendStop(p *os.Process, stop bool) error {
	signal := syscall.SIGCONT
	if stop {
		signal = syscall.SIGSTOP
	}
	if err := p.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// torment has one fault after the other until the time is over, each at least once.
func torment(ctx context.Context, s *subject, on victims, c config) (map[string]int, error) {
	random := rand.New(rand.NewPCG(c.Seed, 1))
	faults := append(ofEveryStore(random), s.faults...)
	times := make(map[string]int)
	if s.omitted != nil {
		times["no full disk, because "+s.omitted.Error()] = 0
	}
	for end, n := time.Now().Add(c.Duration), 0; time.Now().Before(end) || n < len(faults); n++ {
		wait(ctx, c.Hold/2+time.Duration(random.Int64N(int64(c.Hold))))
		f := faults[n%len(faults)]
		if err := f.do(ctx, on, c.Hold); err != nil {
			return times, fmt.Errorf("%s: %w", f.name, err)
		}
		times[f.name]++
	}
	wait(ctx, c.Hold)
	return times, ctx.Err()
}

// summary returns what the workers saw as lists, and counts the outcomes.
func summary(calls map[string]oracle.Call, watches map[string]*oracle.Watch) (all []oracle.Call, followed []oracle.Watch, counts map[string]int) {
	counts = make(map[string]int)
	for _, c := range calls {
		outcome := c.Outcome
		if outcome == "" {
			outcome = "without answer"
		}
		counts[fmt.Sprint(c.Kind, " ", outcome)]++
		all = append(all, c)
	}
	for _, w := range watches {
		counts["event seen"] += len(w.Events)
		followed = append(followed, *w)
	}
	return all, followed, counts
}
