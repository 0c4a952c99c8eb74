package txn

import (
	"slices"
	"sync/atomic"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// Lengths are how many records the last search of a family looked at in each index where hosts without room of their own find
// blocks, and whether that was all of the searched pools. A wrong one costs a longer list, or one more.
type Lengths struct {
	last [2][len(searched)]atomic.Int64 // twice the number, and 1 for all
	far  atomic.Int64                   // how many searches do not try to list what is due together with the next index
}

// Near reports whether the index of what is due may be so short that one list reads the next index, too.
func (l *Lengths) Near() bool {
	n := l.far.Load()
	if n > 0 {
		l.far.Store(n - 1)
	}
	return n == 0
}

// Far notes that it is not, for the next searches.
func (l *Lengths) Far() { l.far.Store(64) }

// searched are what the keys of those indexes begin with.
var searched = [...]string{record.KindEmpty, record.CodeRange(record.KindOwnRoom, alloc.Owner{}).From, record.KindRoom}

// Get returns the length of an index. Of an index that is not one of those it returns 0.
func (l *Lengths) Get(kind string, family int) (n int, all bool) {
	k := slices.Index(searched[:], kind)
	if k < 0 {
		return 0, false
	}
	v := l.last[family/6][k].Load()
	return int(v / 2), v%2 == 1
}

// Set notes the length of an index.
func (l *Lengths) Set(kind string, family, n int, all bool) {
	k := slices.Index(searched[:], kind)
	if k < 0 {
		return
	}
	v := int64(2 * n)
	if all {
		v++
	}
	l.last[family/6][k].Store(v)
}
