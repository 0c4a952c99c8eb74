package kubestore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Equal writers, each with one caller and no pause, get equal shares: the fewest commits are a third of the most at least,
// also if one begins when the others are at full speed.
func TestFairness(t *testing.T) {
	for _, writers := range []int{2, 16} {
		t.Run(fmt.Sprint(writers), func(t *testing.T) {
			name := newName()
			openAt(t, name, Options{})
			total := int64(writers*10 + 80)
			var done atomic.Int64
			counts := make([]int, writers)
			stores := make([]*Store, writers)
			for i := range stores {
				stores[i] = openAt(t, name, Options{})
			}
			var group, ready sync.WaitGroup
			ready.Add(writers)
			for i, s := range stores {
				group.Go(func() {
					// The count begins when every writer has been heard once.
					_, err := s.Commit(limited(t), []store.Op{put(fmt.Sprint("k", i), "first", store.AnyRevision)})
					ready.Done()
					if ready.Wait(); err != nil {
						t.Error(err)
						return
					}
					for done.Load() < total {
						if _, err := s.Commit(limited(t), []store.Op{put(fmt.Sprint("k", i), "v", store.AnyRevision)}); err != nil {
							t.Error(err)
							return
						}
						counts[i]++
						done.Add(1)
					}
				})
			}
			group.Wait()
			fewest, most := counts[0], counts[0]
			for _, n := range counts {
				fewest, most = min(fewest, n), max(most, n)
			}
			t.Log(counts)
			if 3*fewest < most {
				t.Errorf("the fewest commits are %d, the most %d", fewest, most)
			}
		})
	}
}
