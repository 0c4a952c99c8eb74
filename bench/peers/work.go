package main

import "sync"

// worklist collects the works of a system.
type worklist struct {
	system string
	works  []*work
	// skip tells what a contestant is not asked to do.
	skip func(contestant, id string) bool
}

// add gives the work of that id, which it makes if need be, a cell.
func (ws *worklist) add(id, title, contestant string, open func() *job) {
	if ws.skip != nil && ws.skip(contestant, id) {
		return
	}
	c := &cell{contestant: contestant, open: open}
	for _, w := range ws.works {
		if w.id == id {
			w.cells = append(w.cells, c)
			return
		}
	}
	ws.works = append(ws.works, &work{system: ws.system, id: id, title: title, cells: []*cell{c}})
}

// together runs f(0) to f(g-1) at once and waits for all.
func together(g int, f func(i int)) {
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
