package ipset

import "hash/maphash"

// identity is what addresses with equal handle, equal attributes and the same host share.
type identity struct {
	handle, active, alternate string
	host                      string // its code, "" for the block's owner
}

// holder is one identity in a block and how many addresses refer to it.
type holder struct {
	identity
	refs uint64 // addresses held or cooling
	held uint64 // of them, held
	hash uint32 // of the handle
	next int32  // the next holder of the bucket, -1 at the end; of an unused holder the next unused one
}

// holders is the table of identities of one block: holders in a slice, found through buckets by the hash of
// their handle. Holders of one handle are in one bucket, which is how it is known that a handle has left the block.
type holders struct {
	list    []holder
	buckets []int32 // power of two; -1 is empty
	unused  int32   // first unused holder, -1 for none
	count   int
}

// seed is of the process: hashes are never stored, and no result depends on them.
var seed = maphash.MakeSeed()

func hashHandle(h string) uint32 { return uint32(maphash.String(seed, h)) }

// intern returns the holder of id, made if there was none, without counting a reference.
func (t *holders) intern(id identity) int32 {
	hash := hashHandle(id.handle)
	if len(t.buckets) == 0 {
		t.unused = -1
		t.rehash(4)
	}
	for i := t.buckets[hash&uint32(len(t.buckets)-1)]; i >= 0; i = t.list[i].next {
		if h := &t.list[i]; h.hash == hash && h.identity == id {
			return i
		}
	}
	if t.count >= len(t.buckets) {
		t.rehash(2 * len(t.buckets))
	}
	i := t.unused
	if i >= 0 {
		t.unused = t.list[i].next
	} else {
		t.list = append(t.list, holder{})
		i = int32(len(t.list) - 1)
	}
	b := &t.buckets[hash&uint32(len(t.buckets)-1)]
	t.list[i] = holder{identity: id, hash: hash, next: *b}
	*b = i
	t.count++
	return i
}

// rehash spreads the holders over n buckets.
func (t *holders) rehash(n int) {
	used := make([]int32, 0, t.count)
	for _, i := range t.buckets {
		for ; i >= 0; i = t.list[i].next {
			used = append(used, i)
		}
	}
	t.buckets = make([]int32, n)
	for b := range t.buckets {
		t.buckets[b] = -1
	}
	for _, i := range used {
		b := &t.buckets[t.list[i].hash&uint32(n-1)]
		t.list[i].next, *b = *b, i
	}
}

// drop takes one reference away and forgets the holder with the last.
func (t *holders) drop(i int32) {
	h := &t.list[i]
	if h.refs--; h.refs > 0 {
		return
	}
	b := &t.buckets[h.hash&uint32(len(t.buckets)-1)]
	for *b != i {
		b = &t.list[*b].next
	}
	*b = h.next
	t.list[i] = holder{next: t.unused}
	t.unused = i
	t.count--
}

// hosts reports whether an address, held or cooling, has a host noted.
func (t *holders) hosts() bool {
	for i := range t.list {
		if t.list[i].host != "" {
			return true
		}
	}
	return false
}

// heldBy returns the number of addresses that a handle holds.
func (t *holders) heldBy(handle string) uint64 {
	if len(t.buckets) == 0 {
		return 0
	}
	hash, n := hashHandle(handle), uint64(0)
	for i := t.buckets[hash&uint32(len(t.buckets)-1)]; i >= 0; i = t.list[i].next {
		if h := &t.list[i]; h.hash == hash && h.handle == handle {
			n += h.held
		}
	}
	return n
}
