package main

import (
	"fmt"
	"sync"
	"time"
)

// progress says on standard error, after a second and after each time that is twice as long, at least every minute, that
// something goes on. The function that it returns ends that.
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
				n := int(time.Since(began).Seconds())
				if n&(n-1) != 0 && n%60 != 0 {
					continue
				}
				fmt.Fprintf(a.stderr, "ipamctl: %s, %d s\n", what, n)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
}
