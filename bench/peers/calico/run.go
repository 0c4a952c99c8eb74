package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// options of a run.
type options struct {
	passes int           // counted ones
	window time.Duration // that a cell should take in a pass
	procs  int
	slow   time.Duration // that makes a cell take part in few passes
	quick  bool
}

const (
	// fewPasses is how many passes a slow cell takes part in.
	fewPasses = 3
	// noisy is the share of one core that others may take during a window of wall time before it is repeated.
	noisy = 0.25
	// retries is how often that is done.
	retries = 3
)

// runner measures works.
type runner struct {
	options
	log      io.Writer            // progress
	cpu      func() time.Duration // the CPU time of the process
	windows  int                  // of wall time
	troubled int                  // those that others disturbed to the end
}

// measure runs all passes over a work and then forgets its state: what a garbage collection costs depends on all that
// is alive.
func (r *runner) measure(w *work) {
	runtime.GOMAXPROCS(r.procs)
	begin := time.Now()
	for _, c := range w.cells {
		c.job = c.open()
	}
	runtime.GC()
	for _, c := range w.cells {
		r.calibrate(c)
	}
	for pass := range r.passes {
		for i := range w.cells {
			c := w.cells[(i+pass)%len(w.cells)] // another one begins in each pass
			if !c.few || pass < fewPasses {
				c.samples = append(c.samples, r.sample(c))
			}
		}
	}
	for _, c := range w.cells {
		if c.job.close != nil {
			c.job.close()
		}
		c.job = nil
	}
	runtime.GOMAXPROCS(r.procs)
	runtime.GC()
	fmt.Fprintf(r.log, "%6.1fs  %s\n", time.Since(begin).Seconds(), w.id)
}

// calibrate finds how much of a job fills a window, which warms it up too.
func (r *runner) calibrate(c *cell) {
	window := max(r.window, c.job.window)
	if c.job.wall {
		window *= 4 // what others take is known by the tick only
	}
	c.rounds = 1
	fixed := c.job.n > 0
	if !fixed {
		c.job.n = max(1, c.job.grain)
	}
	for {
		took := time.Duration(r.round(c).ns)
		c.few = took > r.slow
		f := min(20, float64(window)/float64(max(took, time.Microsecond)))
		if fixed {
			c.rounds = max(1, int(float64(c.rounds)*f+0.5))
		} else {
			grain := max(1, c.job.grain)
			c.job.n = grain * max(1, int(float64(c.job.n)*f/float64(grain)+0.5))
		}
		if f <= 2 {
			return
		}
	}
}

// round does what a window consists of and returns what it took, in all: the CPU time of the process on one core, so that
// goroutines of a contestant count and other programs do not; or wall time on all cores.
func (r *runner) round(c *cell) (took sample) {
	clock := func() time.Duration { return time.Since(start) }
	procs := r.procs
	if !c.job.wall {
		clock, procs = r.cpu, 1
	}
	if runtime.GOMAXPROCS(0) != procs {
		runtime.GOMAXPROCS(procs)
	}
	var before, after runtime.MemStats
	for range c.rounds {
		if c.job.reset != nil {
			c.job.reset()
		}
		runtime.ReadMemStats(&before)
		t := clock()
		c.job.run(c.job.n)
		took.ns += float64(clock() - t)
		runtime.ReadMemStats(&after)
		took.bytes += float64(after.TotalAlloc - before.TotalAlloc)
		took.allocs += float64(after.Mallocs - before.Mallocs)
	}
	return took
}

// sample measures a cell once, and again while others disturb it.
func (r *runner) sample(c *cell) sample {
	if !c.job.wall {
		s, _ := r.attempt(c)
		return s
	}
	r.windows++
	best, least := r.attempt(c)
	for i := 0; i < retries && least > noisy; i++ {
		if s, share := r.attempt(c); share < least {
			best, least = s, share
		}
	}
	if least > noisy {
		r.troubled++
	}
	return best
}

// attempt measures a cell and tells how many cores others used meanwhile. Garbage is collected before, so that a window
// begins with no debts of another; what a contestant drops costs it no more than the memory that it takes.
func (r *runner) attempt(c *cell) (s sample, others float64) {
	runtime.GC()
	wall, all, own := time.Now(), report.MachineTime(), processTime()
	s = r.round(c)
	others = (report.MachineTime() - all - (processTime() - own)).Seconds() / time.Since(wall).Seconds()
	ops := float64(c.rounds * c.job.n)
	return sample{s.ns / ops, s.bytes / ops, s.allocs / ops}, others
}

// median returns the median of a field over the passes; false if the cell was not measured.
func (c *cell) median(field func(sample) float64) (float64, bool) {
	if c == nil || len(c.samples) == 0 {
		return 0, false
	}
	v := make([]float64, len(c.samples))
	for i, s := range c.samples {
		v[i] = field(s)
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// ns returns the median time of an operation.
func (c *cell) ns() (float64, bool) { return c.median(func(s sample) float64 { return s.ns }) }
