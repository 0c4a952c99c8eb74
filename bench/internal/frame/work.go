// Package frame measures contestants side by side: the same work, in one run. What two programs
// with peers share is here: works and their cells, the runner, tables, targets, and the flags.
//
// In each pass every contestant does a work once, one after the other, and another one begins in
// each pass. A figure is the median over the counted passes, a ratio the quotient of two medians.
package frame

import (
	"slices"
	"sync"
	"time"
)

// A Work is one row of a table: something that several contestants can do.
type Work struct {
	Section string // of the table
	ID      string // short and stable, for targets and -only
	Title   string // what one operation is
	Cells   []*Cell
}

// Cell returns the cell of a contestant, nil if it has none.
func (w *Work) Cell(contestant string) *Cell {
	for _, c := range w.Cells {
		if c.Contestant == contestant {
			return c
		}
	}
	return nil
}

// A Cell is one contestant at one work.
type Cell struct {
	Contestant string
	Open       func() *Job // builds the state, untimed, once
	Samples    []Sample

	job    *Job
	rounds int  // windows of one pass are that many rounds of the job
	few    bool // it is slow and takes part in few passes
}

// A Job is the operation that a cell repeats.
type Job struct {
	// Reset restores the state that Run begins with, untimed. Nil if Run leaves the state as it
	// found it.
	Reset func()
	// Run does n operations.
	Run func(n int)
	// N is the number of operations of a round. 0 stands for as many as fill a window.
	N int
	// Grain, if not 0, divides N.
	Grain int
	// Wall selects the wall clock and all cores: for works with more than one goroutine, and for
	// works that wait.
	Wall bool
	// Window is the least time of it in a pass.
	Window time.Duration
	// Close, if not nil, frees the resources of Open.
	Close func()
}

// Sample is the result of one window, for one operation.
type Sample struct {
	NS, Bytes, Allocs float64
}

// Works collects the works of a section.
type Works struct {
	Section string
	List    []*Work
	// Skip, if not nil, reports whether to omit a work for a contestant.
	Skip func(contestant, id string) bool
}

// Add gives the work of that id, which it creates if needed, a cell.
func (ws *Works) Add(id, title, contestant string, open func() *Job) {
	if ws.Skip != nil && ws.Skip(contestant, id) {
		return
	}
	c := &Cell{Contestant: contestant, Open: open}
	for _, w := range ws.List {
		if w.ID == id {
			w.Cells = append(w.Cells, c)
			return
		}
	}
	ws.List = append(ws.List, &Work{Section: ws.Section, ID: id, Title: title, Cells: []*Cell{c}})
}

// median returns the median of a field over the passes; false if the cell was not measured.
func (c *Cell) median(field func(Sample) float64) (float64, bool) {
	if c == nil || len(c.Samples) == 0 {
		return 0, false
	}
	v := make([]float64, len(c.Samples))
	for i, s := range c.Samples {
		v[i] = field(s)
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// ns returns the median time of an operation.
func (c *Cell) ns() (float64, bool) { return c.median(func(s Sample) float64 { return s.NS }) }

// Together runs f(0) to f(g-1) at once and waits for all.
func Together(g int, f func(i int)) {
	if g == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range g {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(i)
		}()
	}
	wg.Wait()
}
