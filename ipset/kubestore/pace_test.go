package kubestore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// A process waits for those that wrote before it, but not for what wrote once and is gone: a hundred restarts hold up no commit.
func TestSilentRivals(t *testing.T) {
	p := pace{self: newAuthor(), mine: 200, took: 5 * time.Millisecond, others: make(map[author]rival)}
	begin := time.Now()
	for i := range uint64(100) {
		p.others[newAuthor()] = rival{i, begin}
	}
	if n := p.before(201, begin.Add(2*time.Second)); n != 100 {
		t.Errorf("%d of 100 that wrote 2 s ago", n)
	}
	if n := p.before(201, begin.Add(5*time.Second)); n != 0 || len(p.others) != 0 {
		t.Errorf("%d, %d known, of 100 that are silent since 5 s", n, len(p.others))
	}
}

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
