package main

import "sync"

// together runs f(0) to f(g-1) at once and waits for all.
func together(g int, f func(i int)) {
	if g == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range g {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
