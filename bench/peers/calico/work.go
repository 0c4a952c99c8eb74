package main

import "sync"

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
