//go:build !go1.25 && goexperiment.synctest

package synctest

import (
	"testing"
	"testing/synctest"
)

// Test calls f in a new bubble. It runs f as a subtest, because the cleanups and the
// context of f belong in the bubble.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Run(func() { t.Run("bubble", f) })
}

// Wait blocks until every other goroutine of the bubble is durably blocked.
func Wait() { synctest.Wait() }
