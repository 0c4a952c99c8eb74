package journal

import "testing"

// Parts makes a snapshot of more than n bytes one in parts, until the test ends.
func Parts(t *testing.T, n int) {
	before := partBytes
	partBytes = n
	t.Cleanup(func() { partBytes = before })
}
