package main

import (
	"fmt"
	"sync"
	"time"
)

// progress says on standard error, after a second and every second from then on, that something goes
// on. The function that it returns ends that.
func (a *app) progress(what string) (done func()) {
	if a.quiet {
		return func() {}
	}
	began, stop := time.Now(), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				fmt.Fprintf(a.stderr, "ipamctl: %s, %d s\n", what, int(time.Since(began).Seconds()))
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
}
