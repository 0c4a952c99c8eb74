package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// A work is one row of the table: something that several contestants can do.
type work struct {
	system string // the package it belongs to, a section of the table
	id     string // short and stable, for targets and -only
	title  string // what one operation is
	cells  []*cell
}

// cell returns the cell of a contestant, nil if it has none.
func (w *work) cell(contestant string) *cell {
	for _, c := range w.cells {
		if c.contestant == contestant {
			return c
		}
	}
	return nil
}

// A cell is one contestant at one work.
type cell struct {
	contestant string
	open       func() *job // builds the state, untimed, once
	job        *job
	rounds     int // windows of one pass are that many rounds of the job
	few        bool
	samples    []sample
}

// A job is what a cell does over and over.
type job struct {
	// reset brings back the state that run begins with. Nil if run leaves the
	// state as it found it, statistically speaking.
	reset func()
	// run does n operations.
	run func(n int)
	// n is the number of operations of a round. 0 stands for as many as fill a
	// window.
	n int
	// grain is what n is a multiple of, if not 0.
	grain int
	// parallel says that run uses several goroutines.
	parallel bool
}

// sample is what one window measured, for one operation.
type sample struct {
	ns, bytes, allocs float64
}

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
	// noisy is the share of one core that others may take during a parallel
	// window before it is repeated.
	noisy = 0.25
	// retries is how often that is done.
	retries = 3
)

// runner measures works.
type runner struct {
	options
	log      io.Writer // progress
	windows  int       // parallel ones
	troubled int       // those that others disturbed to the end
}

// measure runs all passes over all works.
func (r *runner) measure(works []*work) {
	runtime.GOMAXPROCS(r.procs)
	// The clock of a thread is read by a goroutine that does not change threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := time.Now()
	for _, w := range works {
		fmt.Fprintf(r.log, "%4.0fs  set up %s\n", time.Since(begin).Seconds(), w.id)
		for _, c := range w.cells {
			c.job = c.open()
			r.calibrate(c)
		}
	}
	for pass := range r.passes {
		fmt.Fprintf(r.log, "%4.0fs  pass %d of %d\n", time.Since(begin).Seconds(), pass+1, r.passes)
		for _, w := range works {
			for i := range w.cells {
				// Another one begins in each pass.
				c := w.cells[(i+pass)%len(w.cells)]
				if c.few && pass >= fewPasses {
					continue
				}
				c.samples = append(c.samples, r.sample(c))
			}
		}
	}
	fmt.Fprintf(r.log, "%4.0fs  done\n", time.Since(begin).Seconds())
}

// calibrate finds how much of a job fills a window, which warms it up too.
func (r *runner) calibrate(c *cell) {
	window := r.window
	if c.job.parallel {
		window *= 4 // what others take is known by the tick only
	}
	c.rounds = 1
	fixed := c.job.n > 0
	if !fixed {
		c.job.n = max(1, c.job.grain)
	}
	for {
		took := r.round(c)
		c.few = took > r.slow
		f := float64(window) / float64(max(took, time.Microsecond))
		grow(c, fixed, min(20, f))
		if f <= 2 {
			return
		}
	}
}

// grow multiplies what a window does by f.
func grow(c *cell, fixed bool, f float64) {
	if fixed {
		c.rounds = max(1, int(float64(c.rounds)*f+0.5))
	} else {
		grain := max(1, c.job.grain)
		c.job.n = grain * max(1, int(float64(c.job.n)*f/float64(grain)+0.5))
	}
}

// round does what a window consists of and returns the time it took.
func (r *runner) round(c *cell) (took time.Duration) {
	for range c.rounds {
		if c.job.reset != nil {
			c.job.reset()
		}
		if c.job.parallel {
			t := time.Now()
			c.job.run(c.job.n)
			took += time.Since(t)
		} else {
			t := threadTime()
			c.job.run(c.job.n)
			took += threadTime() - t
		}
	}
	return took
}

// sample measures a cell once, and again while others disturb a parallel one.
func (r *runner) sample(c *cell) sample {
	if !c.job.parallel {
		s, _ := r.attempt(c)
		return s
	}
	r.windows++
	best, least := r.attempt(c)
	for i := 0; i < retries && least > noisy; i++ {
		s, share := r.attempt(c)
		if share < least {
			best, least = s, share
		}
	}
	if least > noisy {
		r.troubled++
	}
	return best
}

// attempt measures a cell and tells how many cores others used meanwhile.
func (r *runner) attempt(c *cell) (s sample, others float64) {
	var before, after runtime.MemStats
	wall, all, own := time.Now(), report.MachineTime(), processTime()
	runtime.ReadMemStats(&before)
	took := r.round(c)
	runtime.ReadMemStats(&after)
	others = (report.MachineTime() - all - (processTime() - own)).Seconds() / time.Since(wall).Seconds()
	ops := float64(c.rounds * c.job.n)
	s = sample{
		ns:     float64(took.Nanoseconds()) / ops,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / ops,
		allocs: float64(after.Mallocs-before.Mallocs) / ops,
	}
	if after.TotalAlloc-before.TotalAlloc > 1<<20 {
		runtime.GC() // what this one dropped is not for the next one to collect
	}
	return s, others
}

// median returns the median of a field over the passes; false if the cell was not
// measured.
func (c *cell) median(field func(sample) float64) (float64, bool) {
	if c == nil || len(c.samples) == 0 {
		return 0, false
	}
	v := make([]float64, len(c.samples))
	for i, s := range c.samples {
		v[i] = field(s)
	}
	return medianOf(v), true
}

// ns returns the median time of an operation.
func (c *cell) ns() (float64, bool) { return c.median(func(s sample) float64 { return s.ns }) }

func medianOf(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
