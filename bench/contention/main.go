// Command contention measures what many goroutines at once cost on one allocator: a pair, one release and one allocation, by 1 to
// 64 goroutines, beside the least that a lock can cost, a mutex around one bit. Both sides take turns, so that they see the same
// machine, and the median of the quotients counts. Eight sets with a lock each, a goroutine to one of them, are the most that a
// structure with more locks could gain.
//
//	go run ./bench/contention -readme bench/contention/README.md
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/bench/internal/thread"
)

// config says how long to measure.
type config struct {
	turn       time.Duration // of one side
	passes     int
	goroutines []int
}

func main() {
	c := config{goroutines: []int{1, 2, 8, 64}}
	flag.DurationVar(&c.turn, "turn", 30*time.Millisecond, "how long a turn of one side takes")
	flag.IntVar(&c.passes, "passes", 15, "turns of each side")
	page := flag.String("readme", "", "write the table into this `FILE`")
	flag.Parse()
	if err := run(c, *page); err != nil {
		fmt.Fprintln(os.Stderr, "contention:", err)
		os.Exit(1)
	}
}

func run(c config, page string) error {
	place := report.Place{File: page, Name: "contention"}
	if page != "" {
		if err := place.Check(); err != nil { // before the work
			return err
		}
	}
	commit, begin, machine := report.Commit(), time.Now(), report.MachineTime()
	own := thread.Process()
	byWall, byCPU := tables(c)
	others := float64(report.MachineTime()-machine-(thread.Process()-own)) / float64(time.Since(begin)) / float64(runtime.NumCPU())
	text := strings.Join(report.Aligned(byCPU), "\n") + "\n\n" + strings.Join(report.Aligned(byWall), "\n") +
		fmt.Sprintf("\n\nMedians of %d passes of %v a side; GOMAXPROCS=%d, %s, %s, commit %s. Other programs took %.0f %% of the machine meanwhile.",
			c.passes, c.turn, runtime.GOMAXPROCS(0), report.CPUModel(), runtime.Version(), commit, 100*max(0, others))
	fmt.Println(text)
	if page != "" {
		return place.Refresh(text)
	}
	return nil
}

// figure is a time in nanoseconds by the wall, or of CPU, or a quotient of such.
type figure [2]float64

// tables measures every subject with every number of goroutines.
func tables(c config) (byWall, byCPU [][]string) {
	heads := []string{}
	for _, g := range c.goroutines {
		heads = append(heads, fmt.Sprintf("%d goroutine%s", g, map[bool]string{true: "s"}[g > 1]))
	}
	heads = append(heads, fmt.Sprintf("%d to %d", c.goroutines[len(c.goroutines)-1], c.goroutines[0]))
	var out [2][][]string
	for k, name := range []string{"wall time of a pair", "CPU time of a pair"} {
		out[k] = [][]string{append([]string{name}, heads...)}
	}
	for _, s := range subjects {
		rows := [2][]string{{s.name}, {s.name}}
		var first, last figure
		for i, g := range c.goroutines {
			times, ratios := c.compare(s.workers(g), floor(g))
			if last = times; i == 0 {
				first = times
			}
			for k := range rows {
				text := report.Duration(times[k])
				if !s.floor {
					text += ", " + report.Times(ratios[k])
				}
				rows[k] = append(rows[k], text)
			}
		}
		for k := range rows {
			out[k] = append(out[k], append(rows[k], report.Times(last[k]/first[k])))
		}
	}
	return out[0], out[1]
}

// compare returns the time of a pair of one side, and how often that of the other one goes into it: medians.
func (c config) compare(subject, other []func()) (ns, ratio figure) {
	var times, ratios [2][]float64
	for i := range c.passes + 1 {
		a, b := c.measure(subject), c.measure(other)
		for k := range a {
			if i > 0 { // the first pass fills caches
				times[k], ratios[k] = append(times[k], a[k]), append(ratios[k], a[k]/b[k])
			}
		}
	}
	for k := range ns {
		ns[k], ratio[k] = median(times[k]), median(ratios[k])
	}
	return ns, ratio
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// measure has every worker make pairs at once and returns the time by the number of all pairs.
func (c config) measure(workers []func()) figure {
	const between = 32 // pairs between two looks at the clock
	made := make([]int, len(workers))
	var wg sync.WaitGroup
	begin, used := time.Now(), thread.Process()
	for i, pair := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			n := 0
			for time.Since(begin) < c.turn {
				for range between {
					pair()
				}
				n += between
			}
			made[i] = n
		}()
	}
	wg.Wait()
	took, cpu, sum := time.Since(begin), thread.Process()-used, 0
	for _, n := range made {
		sum += n
	}
	return figure{float64(took) / float64(sum), float64(cpu) / float64(sum)}
}
