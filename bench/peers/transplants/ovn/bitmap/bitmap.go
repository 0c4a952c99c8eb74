//go:build transplant

// Package bitmap puts bitmap.Bitmap in the place of OVN-Kubernetes' allocator of offsets.
package bitmap

import (
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/ipalloc/ipalloc/bitmap"
)

// AllocationBitmap adds a lock and the choice of the offset where a search begins.
type AllocationBitmap struct {
	mu    sync.Mutex
	spec  string
	bits  *bitmap.Bitmap
	begin func() uint64
	next  uint64 // after the last one allocated
	count int    // their tests look at it
}

func newMap(n int, spec string) *AllocationBitmap {
	return &AllocationBitmap{spec: spec, bits: bitmap.New(uint64(n)), begin: func() uint64 { return 0 }}
}

func NewContiguousAllocationMap(n int, spec string) *AllocationBitmap { return newMap(n, spec) }

func NewAllocationMap(n int, spec string) *AllocationBitmap {
	a := newMap(n, spec)
	a.begin = func() uint64 { return rand.Uint64N(a.bits.Len()) }
	return a
}

func NewRoundRobinAllocationMap(n int, spec string) *AllocationBitmap {
	a := newMap(n, spec)
	a.begin = func() uint64 { return a.next % a.bits.Len() }
	return a
}

// locked runs f and counts what it leaves.
func (a *AllocationBitmap) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.count = int(a.bits.Count())
}

func (a *AllocationBitmap) Allocate(offset int) (ok bool, err error) {
	a.locked(func() { ok = a.bits.Set(uint64(offset)) })
	return ok, nil
}

func (a *AllocationBitmap) AllocateNext() (offset int, ok bool, err error) {
	a.locked(func() {
		var x uint64
		if x, ok = a.bits.SetNextClear(a.begin()); ok {
			offset, a.next = int(x), x+1
		}
	})
	return offset, ok, nil
}

func (a *AllocationBitmap) Release(offset int) { a.locked(func() { a.bits.Clear(uint64(offset)) }) }

func (a *AllocationBitmap) Has(offset int) (has bool) {
	a.locked(func() { has = a.bits.Test(uint64(offset)) })
	return has
}

func (a *AllocationBitmap) Free() (n int) {
	a.locked(func() { n = int(a.bits.Len() - a.bits.Count()) })
	return n
}

func (a *AllocationBitmap) ForEach(fn func(int)) {
	a.locked(func() {
		for x := range a.bits.All() {
			fn(int(x))
		}
	})
}

func (a *AllocationBitmap) Snapshot() (spec string, data []byte) {
	a.locked(func() { data, _ = a.bits.MarshalBinary() }) // which returns no error
	return a.spec, data
}

func (a *AllocationBitmap) Restore(spec string, data []byte) (err error) {
	if spec != a.spec {
		return errors.New("the provided range does not match the current range")
	}
	a.locked(func() { err = a.bits.UnmarshalBinary(data) })
	return err
}
