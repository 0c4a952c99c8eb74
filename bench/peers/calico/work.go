package main

import (
	"sync"
	"time"
)

// A work is one row of a table: something that several contestants can do.
type work struct {
	section string // of the table
	id      string // short and stable, for targets and -only
	title   string // what one operation is
	cells   []*cell
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
	open       func() *job // builds the state, untimed
	job        *job
	rounds     int  // windows of one pass are that many rounds of the job
	few        bool // it is slow and takes part in few passes
	samples    []sample
}

// A job is what a cell does over and over.
type job struct {
	// reset brings back the state that run begins with, untimed. Nil if run leaves the state as it found it.
	reset func()
	// run does n operations.
	run func(n int)
	// n is the number of operations of a round. 0 stands for as many as fill a window.
	n int
	// grain is what n is a multiple of, if not 0.
	grain int
	// wall says that the time is that of the clock on the wall, with all cores: for works of several callers, and for
	// those that wait.
	wall bool
	// window is the least time of it in a pass.
	window time.Duration
	// close frees what open took, if not nil.
	close func()
}

// sample is what one window measured, for one operation.
type sample struct {
	ns, bytes, allocs float64
}

// worklist collects works.
type worklist struct {
	section string
	works   []*work
}

// add gives the work of that id, which it makes if need be, a cell.
func (ws *worklist) add(id, title, contestant string, open func() *job) {
	c := &cell{contestant: contestant, open: open}
	for _, w := range ws.works {
		if w.id == id {
			w.cells = append(w.cells, c)
			return
		}
	}
	ws.works = append(ws.works, &work{section: ws.section, id: id, title: title, cells: []*cell{c}})
}

// together runs f(0) to f(g-1) at once and waits for all.
func together(g int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range g {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// must returns v; an error is the end of the run.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// check ends the run if there is an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
