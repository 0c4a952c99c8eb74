//go:build unix && (go1.25 || goexperiment.synctest)

package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/synctest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
)

// contended is a store in which every commit is in conflict.
type contended struct {
	store.Store
	commits int
	last    func() // the tenth commit calls it
}

func (c *contended) Commit(_ context.Context, ops []store.Op) (uint64, error) {
	if c.commits++; c.commits == 10 {
		c.last()
	}
	return 0, store.Conflict("test", ops[0].Key)
}

// Serve waits between attempts to write its record, longer each time.
func TestServeBacksOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin := time.Now()
		if err := remote.Serve(ctx, dir+"/s", &contended{store.NewMemory(), 0, cancel}); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 100*time.Millisecond {
			t.Errorf("ten attempts in %v of the bubble's clock", took)
		}
	})
}
