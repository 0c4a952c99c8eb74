package bench

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/bits-and-blooms/bitset"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// pool4 is the pool of all IPv4 work; the length of a child makes its size.
var pool4 = netip.MustParsePrefix("10.0.0.0/8")

const (
	// windowBits is log2 of the handles that a driver holds. With all of 2^24 the
	// driver's array would be what is measured.
	windowBits, window = 12, 1 << windowBits
	// ownBits is the same for each of many goroutines.
	ownBits, own = 6, 1 << ownBits
	batch        = 64
)

// fills are the fill levels of a set that is churned: 1/free of it is free.
var fills = []struct {
	name string
	free uint64
}{{"50", 2}, {"99", 100}, {"99.99", 10000}}

// orders are log2 of the children of the sets that every work is done on.
var orders = []int{16, 20, 24}

// must returns v. Every call must succeed, or something else is measured.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// random is a generator that costs less than what it drives.
type random uint64

// below returns a number of [0, 2^bits).
func (x *random) below(bits uint) uint64 {
	*x = *x*6364136223846793005 + 1442695040888963407
	return uint64(*x) >> (64 - bits)
}

// scatter returns element i of a permutation of [0, 2^order) that looks random.
func scatter(i uint64, order int) uint64 {
	mask := ^uint64(0) >> (64 - order)
	for range 3 {
		i = (i*0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & mask
		i ^= i >> (order/2 + 1)
	}
	return i
}

// prefixes is what the drivers need of a set.
type prefixes interface {
	AllocateNext() (netip.Prefix, error)
	Occupy(netip.Prefix) (uint64, error)
	Release(netip.Prefix) (uint64, error)
}

// load takes all but the first 1/free of the 2^order children of s, in the order
// of scatter, and returns n of those taken.
func load(s prefixes, codec addr.Codec, free uint64, n int) []netip.Prefix {
	order := codec.Order()
	child := func(i uint64) netip.Prefix { return codec.Prefix(scatter(i, order)) }
	total := uint64(1) << order
	if free = total / free; free >= total/2 {
		for i := free; i < total; i++ {
			must(s.Occupy(child(i)))
		}
	} else {
		must(s.Occupy(codec.Pool()))
		for i := range free {
			must(s.Release(child(i)))
		}
	}
	taken := make([]netip.Prefix, n)
	for i := range taken {
		taken[i] = child(free + uint64(i))
	}
	return taken
}

// newSet returns an empty set of 2^order children.
func newSet(order int) (*cidrset.Set, addr.Codec) {
	bits := pool4.Bits() + order
	return must(cidrset.New(pool4, bits)), must(addr.NewCodec(pool4, bits))
}

// loaded returns a set of 2^order children of which 1/free is free, and n of those
// that are taken.
func loaded(order int, free uint64, n int) (*cidrset.Set, []netip.Prefix) {
	s, codec := newSet(order)
	return s, load(s, codec, free, n)
}

// A churn gives back a random child of its window and takes the next one for it.
type churn[S prefixes] struct {
	s      S
	win    []netip.Prefix // 2^bits of them
	bits   uint
	random random
}

// step does so once.
func (c *churn[S]) step() {
	p := &c.win[c.random.below(c.bits)]
	if _, err := c.s.Release(*p); err != nil {
		panic(err)
	}
	next, err := c.s.AllocateNext()
	if err != nil {
		panic(err)
	}
	*p = next
}

// churned returns a churn of a set of 2^order children of which 1/free is free.
func churned(order int, free uint64) *churn[*cidrset.Set] {
	s, win := loaded(order, free, window)
	return &churn[*cidrset.Set]{s: s, win: win, bits: windowBits}
}

// A far is a set with one free child, the last one, and its cursor on the first:
// each look for it has the whole set to go.
type far struct {
	s    *cidrset.Set
	last netip.Prefix
}

func newFar(pool netip.Prefix, order int) *far {
	bits := pool.Bits() + order
	codec := must(addr.NewCodec(pool, bits))
	s := must(cidrset.New(pool, bits))
	must(s.Occupy(pool))
	return &far{s, codec.Prefix(codec.Last())}
}

// step gives that child back and takes it again.
func (f *far) step() {
	if _, err := f.s.Release(f.last); err != nil {
		panic(err)
	}
	if _, err := f.s.AllocateNext(); err != nil {
		panic(err)
	}
}

// A filler takes every child of a set one by one and, when it is full, gives back
// all of them in one call.
type filler struct {
	s    *cidrset.Set
	left uint64
	size uint64
}

func newFiller(order int) *filler {
	s, _ := newSet(order)
	return &filler{s: s, left: 1 << order, size: 1 << order}
}

// take takes one.
func (f *filler) take() {
	if f.left == 0 {
		f.empty()
	}
	f.left--
	if _, err := f.s.AllocateNext(); err != nil {
		panic(err)
	}
}

// takeN takes as many as dst holds, which the size is a multiple of.
func (f *filler) takeN(dst []netip.Prefix) {
	if f.left == 0 {
		f.empty()
	}
	f.left -= uint64(len(dst))
	if err := f.s.AllocateN(dst); err != nil {
		panic(err)
	}
}

//go:noinline
func (f *filler) empty() {
	must(f.s.Release(pool4))
	f.left = f.size
}

// A mixed holds prefixes of all lengths from /20 to /28.
type mixed struct {
	s      *cidrset.Set
	live   []netip.Prefix
	random random
}

const shortest, lengths = 20, 9

func newMixed(live int) *mixed {
	m := &mixed{s: must(cidrset.New(pool4, 28)), live: make([]netip.Prefix, live)}
	for i := range m.live {
		m.live[i] = must(m.s.AllocatePrefix(shortest + i%lengths))
	}
	for range 4 * live { // from one of each length in turn to what it will be like
		m.step()
	}
	return m
}

// step gives back a random prefix and takes one of another length, each as
// probable.
func (m *mixed) step() {
	p := &m.live[m.random.below(32)*uint64(len(m.live))>>32]
	if _, err := m.s.Release(*p); err != nil {
		panic(err)
	}
	other := 1 + int(m.random.below(16)*(lengths-1)>>16)
	next, err := m.s.AllocatePrefix(shortest + (p.Bits()-shortest+other)%lengths)
	if err != nil {
		panic(err)
	}
	*p = next
}

// part occupies and releases a prefix, for which both must change all n children.
func part(s *cidrset.Set, p netip.Prefix, n uint64) {
	if got, err := s.Occupy(p); err != nil || got != n {
		panic(fmt.Sprint(got, err))
	}
	if got, err := s.Release(p); err != nil || got != n {
		panic(fmt.Sprint(got, err))
	}
}

// flatSet is the least that makes an allocator of a plain bitset: the mutex and the
// codec of a cidrset.Set, a bit for a child, a cursor. It counts nothing.
type flatSet struct {
	codec  addr.Codec
	mu     sync.Mutex
	taken  *bitset.BitSet
	cursor uint
}

func flatChurned(order int, free uint64) *churn[*flatSet] {
	codec := must(addr.NewCodec(pool4, pool4.Bits()+order))
	s := &flatSet{codec: codec, taken: bitset.New(uint(codec.Last() + 1))}
	return &churn[*flatSet]{s: s, win: load(s, codec, free, window), bits: windowBits}
}

func (s *flatSet) AllocateNext() (netip.Prefix, error) {
	s.mu.Lock()
	i, ok := s.taken.NextClear(s.cursor)
	if !ok {
		if i, ok = s.taken.NextClear(0); !ok {
			s.mu.Unlock()
			return netip.Prefix{}, ipalloc.ErrFull
		}
	}
	s.taken.Set(i)
	s.cursor = (i + 1) & uint(s.codec.Last())
	s.mu.Unlock()
	return s.codec.Prefix(uint64(i)), nil
}

func (s *flatSet) Occupy(p netip.Prefix) (uint64, error) {
	lo, hi, rel := s.codec.Locate(p)
	if rel == addr.Foreign {
		return 0, ipalloc.ErrOutOfRange
	}
	s.mu.Lock()
	for i := lo; i <= hi; i++ {
		s.taken.Set(uint(i))
	}
	s.mu.Unlock()
	return hi - lo + 1, nil
}

func (s *flatSet) Release(p netip.Prefix) (uint64, error) {
	i, ok := s.codec.Child(p)
	if !ok {
		return 0, ipalloc.ErrOutOfRange
	}
	s.mu.Lock()
	s.taken.Clear(uint(i))
	s.mu.Unlock()
	return 1, nil
}

// size names a number of children.
func size(order int) string { return fmt.Sprintf("size=2^%d", order) }

// each runs a benchmark for each order.
func each(b *testing.B, f func(b *testing.B, order int)) {
	for _, order := range orders {
		b.Run(size(order), func(b *testing.B) { f(b, order) })
	}
}
