//go:build go1.25

package synctest

import (
	"testing"
	"testing/synctest"
)

// Test calls f in a new bubble.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// Wait blocks until every other goroutine of the bubble is durably blocked.
func Wait() { synctest.Wait() }
