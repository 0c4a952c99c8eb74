package journal

import "testing"

// Parts makes a snapshot of more than n bytes one of several commits, until the test ends.
func Parts(t *testing.T, n int) {
	before := commitBytes
	commitBytes = n
	t.Cleanup(func() { commitBytes = before })
}
