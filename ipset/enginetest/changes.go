package enginetest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// testChanges follows a history from its beginning and from its middle: after each step, what the changes say is held is what was
// given. A loop whose context ends returns its error.
func testChanges(t *testing.T, open storetest.Open) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := newEngine(t, open(t), &clock{t: start})
	setUp(t, e)
	type follower struct {
		next func() (alloc.Commit, error, bool)
		held map[netip.Addr]string
	}
	var followers []follower
	follow := func(after uint64, held map[netip.Addr]string) {
		next, stop := iter.Pull2(e.Changes(ctx, after))
		t.Cleanup(stop)
		followers = append(followers, follower{next, held})
	}
	follow(0, make(map[netip.Addr]string))
	held := make(map[netip.Addr]string)
	steps := history()
	rev := uint64(0)
	for i, s := range steps {
		if i == len(steps)/2 {
			follow(rev, maps.Clone(held))
			follow(0, make(map[netip.Addr]string))
		}
		if err := s.do(ctx, e, held); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for _, f := range followers {
			for !maps.Equal(f.held, held) {
				c, err, _ := f.next()
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				rev = c.Rev
				for _, ch := range c.Changes {
					switch ch.Kind {
					case alloc.AddressAssigned:
						f.held[ch.Address] = ch.Is.Handle
					case alloc.AddressReleased:
						delete(f.held, ch.Address)
					}
				}
			}
		}
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	for _, f := range followers {
		var err error
		for err == nil { // what changed no address
			_, err, _ = f.next()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended: %v", err)
		}
	}
}
