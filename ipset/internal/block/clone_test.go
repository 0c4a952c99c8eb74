package block

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A copy has the content of the block and shares none of its memory: what happens to one is not seen in the other.
func TestCloneIsSeparate(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, prefix := range []string{"10.0.0.64/26", "10.0.0.0/24", "2001:db8::/104"} {
		b := churn(t, r, prefix, 60, true)
		data, addrs := records(b)
		c := b.Clone()
		mustCheck(t, c)
		now := t0.Add(time.Hour)
		c.Advance(now, time.Minute)
		c.AutoAssign(nil, 5, alloc.Claim{Handle: "copy"}, now, nil)
		for al := range b.All() {
			c.SetAttributes(al.Address, alloc.Guard{}, alloc.Attributes{}, alloc.Attributes{})
			c.Release(al.Address, alloc.Guard{}, now, 0)
		}
		mustCheck(t, b)
		if again, addrsAgain := records(b); again != data || !maps.Equal(addrs, addrsAgain) {
			t.Errorf("%s: a change of the copy changed the block", prefix)
		}
		data, addrs = records(c)
		b.AutoAssign(nil, 5, alloc.Claim{Handle: "first"}, now, nil)
		mustCheck(t, c)
		if again, addrsAgain := records(c); again != data || !maps.Equal(addrs, addrsAgain) {
			t.Errorf("%s: a change of the block changed the copy", prefix)
		}
	}
}
