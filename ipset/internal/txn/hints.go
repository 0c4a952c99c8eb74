package txn

import (
	"net/netip"
	"sync"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// A commit cannot verify thousands of blocks of one host. The hint says where such a host had room last; a wrong hint costs a
// read and never a wrong answer, because the block is verified before it is used.

// Hints are the blocks that had room last, by owner and family, of owners with more blocks than a commit can verify. They
// outlive the cached record of the owner, and a dry engine begins with those of its engine.
type Hints struct {
	mu   sync.Mutex
	last occ.Recent[alloc.Owner, *[2]netip.Prefix]
}

// Get returns the block of an owner that had room last.
func (h *Hints) Get(o alloc.Owner, family int) netip.Prefix {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.last.Get(o); v != nil {
		return v[family/6]
	}
	return netip.Prefix{}
}

// Set notes the block of an owner that had room last.
func (h *Hints) Set(o alloc.Owner, block netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.last.Get(o)
	if v == nil {
		h.last.Age()
		v = new([2]netip.Prefix)
		h.last.Put(o, v)
	}
	v[record.Family(block)/6] = block
}

// CopyFrom takes over the hints of another engine.
func (h *Hints) CopyFrom(other *Hints) {
	other.mu.Lock()
	defer other.mu.Unlock()
	for o, v := range other.last.All() {
		h.last.Put(o, &[2]netip.Prefix{v[0], v[1]})
	}
}
