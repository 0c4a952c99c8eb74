package frame

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/bench/internal/thread"
)

// Options of a run.
type Options struct {
	Passes int           // counted ones
	Window time.Duration // that a cell should take in a pass
	Procs  int           // cores of works on the wall clock
	Slow   time.Duration // a round that takes longer makes its cell take part in few passes
}

const (
	// fewPasses is how many passes a slow cell takes part in.
	fewPasses = 3
	// noisy is the share of one core that other programs may take during a window of wall time
	// before it is repeated.
	noisy = 0.25
	// retries is how often that is done.
	retries = 3
)

// Runner measures works. Works of one goroutine are timed by a CPU clock, so that other programs of
// the machine do not count.
type Runner struct {
	Options
	Log io.Writer // progress
	// Process selects the clock of the process, on one core: it counts the goroutines that a
	// contestant starts, and the garbage collector. Otherwise the clock is the CPU clock of the
	// thread.
	Process bool
	// Clock replaces the CPU clock, in tests.
	Clock func() time.Duration

	Windows  int // of wall time
	Troubled int // those that other programs disturbed to the end

	dropped uint64 // TotalAlloc at the last garbage collection that the runner asked for
}

var start = time.Now()

// Measure runs all passes over works together and then drops their state.
func (r *Runner) Measure(works []*Work) {
	if r.Clock == nil {
		r.Clock = thread.Time
		if r.Process {
			r.Clock = thread.Process
		}
	}
	runtime.GOMAXPROCS(r.Procs)
	runtime.LockOSThread() // the clock of a thread is read by a goroutine that does not change threads
	defer runtime.UnlockOSThread()
	begin := time.Now()
	for _, w := range works {
		for _, c := range w.Cells {
			c.job = c.Open()
		}
	}
	runtime.GC()
	for _, w := range works {
		for _, c := range w.Cells {
			r.calibrate(c)
		}
	}
	for pass := range r.Passes {
		for _, w := range works {
			for i := range w.Cells {
				c := w.Cells[(i+pass)%len(w.Cells)]
				if !c.few || pass < fewPasses {
					c.Samples = append(c.Samples, r.sample(c))
				}
			}
		}
		if len(works) > 1 {
			fmt.Fprintf(r.Log, "%6.1fs  pass %d of %d\n", time.Since(begin).Seconds(), pass+1, r.Passes)
		}
	}
	for _, w := range works {
		for _, c := range w.Cells {
			if c.job.Close != nil {
				c.job.Close()
			}
			c.job = nil
		}
		fmt.Fprintf(r.Log, "%6.1fs  %s\n", time.Since(begin).Seconds(), w.ID)
	}
	runtime.GOMAXPROCS(r.Procs)
	runtime.GC()
}

// calibrate finds how much of a job fills a window, which also warms it up.
func (r *Runner) calibrate(c *Cell) {
	window := max(r.Window, c.job.Window)
	if c.job.Wall {
		window *= 4 // the time that other programs take is known by the tick only
	}
	c.rounds = 1
	fixed := c.job.N > 0
	if !fixed {
		c.job.N = max(1, c.job.Grain)
	}
	for {
		took := time.Duration(r.round(c).NS)
		c.few = took > r.Slow
		f := min(20, float64(window)/float64(max(took, time.Microsecond)))
		if fixed {
			c.rounds = max(1, int(float64(c.rounds)*f+0.5))
		} else {
			grain := max(1, c.job.Grain)
			c.job.N = grain * max(1, int(float64(c.job.N)*f/float64(grain)+0.5))
		}
		if f <= 2 {
			return
		}
	}
}

// round does what a window consists of and returns what that took, in all.
func (r *Runner) round(c *Cell) (took Sample) {
	clock, procs := r.Clock, r.Procs
	if c.job.Wall {
		clock = func() time.Duration { return time.Since(start) }
	} else if r.Process {
		procs = 1
	}
	if runtime.GOMAXPROCS(0) != procs {
		runtime.GOMAXPROCS(procs)
	}
	var before, after runtime.MemStats
	for range c.rounds {
		if c.job.Reset != nil {
			c.job.Reset()
		}
		runtime.ReadMemStats(&before)
		t := clock()
		c.job.Run(c.job.N)
		took.NS += float64(clock() - t)
		runtime.ReadMemStats(&after)
		took.Bytes += float64(after.TotalAlloc - before.TotalAlloc)
		took.Allocs += float64(after.Mallocs - before.Mallocs)
	}
	return took
}

// sample measures a cell once, and again while other programs disturb a window of wall time.
func (r *Runner) sample(c *Cell) Sample {
	best, least := r.attempt(c)
	if !c.job.Wall {
		return best
	}
	r.Windows++
	for i := 0; i < retries && least > noisy; i++ {
		if s, share := r.attempt(c); share < least {
			best, least = s, share
		}
	}
	if least > noisy {
		r.Troubled++
	}
	return best
}

// attempt measures a cell and returns how many cores other programs used meanwhile. Garbage of
// earlier windows is collected before, untimed.
func (r *Runner) attempt(c *Cell) (s Sample, others float64) {
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.TotalAlloc-r.dropped > 1<<20 {
		runtime.GC()
		r.dropped = m.TotalAlloc
	}
	wall, all, own := time.Now(), report.MachineTime(), thread.Process()
	s = r.round(c)
	others = (report.MachineTime() - all - (thread.Process() - own)).Seconds() / time.Since(wall).Seconds()
	ops := float64(c.rounds * c.job.N)
	return Sample{s.NS / ops, s.Bytes / ops, s.Allocs / ops}, others
}

// LiveHeap returns the bytes of the objects that are reachable.
func LiveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep, and what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
