package txn

import (
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every room works on the same few things of an engine. They stand here, at the bottom, so that no room needs the face above it.

// Engine is the state of one engine that the packages above share: the store and its limits, the clock, the decoded catalog,
// and the runner that carries out their plans one commit after the other. The
// face sets the first fields, and Start the rest.
type Engine struct {
	DB     store.Store // what plans read and commits are made on
	Limits store.Limits
	// Others is the store that others see, if they see the commits of this one only later and [store.Published] knows it; else nil.
	Others store.Store

	Now    func() time.Time
	Labels func(alloc.Owner) (map[string]string, bool)
	Skew   int64
	Keep   int // how many records of each kind are cached
	Tries  int // how often a commit that meets conflicts is made
	Retry  occ.Retry
	Import bool // closed pools serve this engine
	Dry    bool // nothing is written below DB

	Store   store.Store                    // DB for what reads outside of a plan
	Decoded atomic.Pointer[DecodedCatalog] // the last one that was decoded
	Hints   Hints
	Lengths Lengths
	Run     *occ.Runner[*Txn]
	Txn     *Txn
}

// Times that the records keep are nanoseconds since 1970 in 64 bits, above 0.
var lastTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// Clock reads the clock. It returns [ipalloc.ErrInvalid] for a time that no record can keep, as of a machine without a battery: one
// that was written would end nothing, or everything at once.
func (e *Engine) Clock() (int64, error) {
	now := e.Now()
	at := now.UnixNano() // of another time if 64 bits cannot hold it
	if at < 1 || at > lastTime || !time.Unix(0, at).Equal(now) {
		return 0, cause.Wrap(ipalloc.Error{Op: "read clock", Field: "Options.Now", Text: now.UTC().Format(time.RFC3339Nano), Reason: "not from 1970 to 2261", Err: ipalloc.ErrInvalid})
	}
	return at, nil
}

// Past returns the moment that has passed by every engine's clock.
func (e *Engine) Past() (int64, error) {
	now, err := e.Clock()
	return now - e.Skew, err
}
