package metrics

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

var (
	shortages      = define("shortages_total", counter, "Times that a pool gave less than asked, by reason; see Engine.Observe. Without a pool, a limit or an address was in the way.", "kind", "space", "pool", "family", "reason")
	assignFailures = define("assign_failures_total", counter, "Assignments that failed, by the error they match; see Engine.Observe.", "kind", "space", "reason")
	scrapeSuccess  = define("scrape_success", gauge, "1 if the statistics could be read for this scrape, else 0 and the pools are absent.", "kind", "space")
	scrapeSeconds  = define("scrape_seconds", gauge, "How long the last reading of the statistics took.", "kind", "space")
)

// reasons names the errors by which failed assignments are counted. The first match counts, so the vaguest come last. A shortage
// has the reason of the pool in an alert of its own.
var reasons = []struct {
	err      error
	name     string
	shortage bool
}{
	{ipalloc.ErrUnknownOutcome, "unknown outcome", false}, {ipalloc.ErrConflict, "conflict", false}, {ipalloc.ErrFull, "full", true},
	{ipalloc.ErrCooling, "cooling", true}, {ipalloc.ErrOccupied, "occupied", false}, {ipalloc.ErrReserved, "reserved", true},
	{ipalloc.ErrLimit, "limit", true}, {ipalloc.ErrNotFound, "not found", false}, {ipalloc.ErrNotHeld, "not held", false},
	{ipalloc.ErrMismatch, "mismatch", false}, {ipalloc.ErrInvalid, "invalid", false}, {ipalloc.ErrVersion, "unknown version", false},
	{ipalloc.ErrReplaced, "replaced", false}, {ipalloc.ErrCorrupt, "corrupt", false}, {ipalloc.ErrClosed, "closed", false},
	{context.Canceled, "cancelled", false}, {context.DeadlineExceeded, "deadline", false},
}

// refusals counts the calls that failed and what pools were short of. The zero value is ready.
type refusals struct {
	mu       sync.Mutex
	counts   map[shortage]*shortCount
	failures map[string]float64
}

type shortage struct {
	pool   string
	family int // 0 if unknown
	reason string
}

type shortCount struct {
	n    float64
	last time.Time
}

// observe counts a call that failed.
func (r *refusals) observe(err error) {
	name, isShort := "other", false
	for _, known := range reasons {
		if errors.Is(err, known.err) {
			name, isShort = known.name, known.shortage
			break
		}
	}
	var e *ipalloc.Error
	errors.As(err, &e)
	if name == "occupied" && e != nil && e.Addr.IsValid() && e.Prefix.IsValid() {
		name, isShort = alloc.ReasonForeignLeft.String(), true // the address is free, and its block is another host's
	}
	r.mu.Lock()
	if r.failures == nil {
		r.failures = make(map[string]float64)
	}
	r.failures[name]++
	r.mu.Unlock()
	switch short := alloc.Shortages(err); {
	case !isShort: // also if no pool qualifies: none was tried
	case len(short) > 0:
		r.short(short)
	default:
		r.add(inTheWay(e, name))
	}
}

// inTheWay returns the shortage that an error tells without a list: of its pool, or of no pool for a limit, whose name is a caller's.
func inTheWay(e *ipalloc.Error, reason string) shortage {
	if e == nil || e.Package == "limits" {
		return shortage{reason: reason}
	}
	if e.Pool.IsValid() {
		return shortage{cmp.Or(e.Name, e.Pool.String()), family4or6(e.Pool.Addr()), reason}
	}
	for _, a := range []netip.Addr{e.Addr, e.Prefix.Addr()} {
		if a.IsValid() && e.Name != "" {
			return shortage{e.Name, family4or6(a), reason}
		}
	}
	return shortage{reason: reason}
}

// short counts shortages.
func (r *refusals) short(all []alloc.Shortage) {
	for _, s := range all {
		r.add(shortage{s.Pool, s.Family, s.Reason.String()})
	}
}

func (r *refusals) add(s shortage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.at(s)
	c.n++
	c.last = time.Now()
}

// at returns the count of a shortage; r.mu is held.
func (r *refusals) at(s shortage) *shortCount {
	if r.counts == nil {
		r.counts = make(map[shortage]*shortCount)
	}
	if r.counts[s] == nil {
		r.counts[s] = new(shortCount)
	}
	return r.counts[s]
}

// keep makes a count for each reason of each pool that there was at a time, because a counter that is born above 0 has no first
// increase, and drops those of pools that were removed before.
func (r *refusals) keep(at time.Time, pools func(yield func(name string, family int))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[string]bool{"": true}
	for _, known := range reasons {
		if known.shortage {
			r.at(shortage{reason: known.name})
		}
	}
	r.at(shortage{reason: alloc.ReasonForeignLeft.String()})
	pools(func(name string, family int) {
		there[name] = true
		for reason := alloc.ReasonFull; reason <= alloc.ReasonCommitFull; reason++ {
			r.at(shortage{name, family, reason.String()})
		}
	})
	for s, c := range r.counts {
		if !there[s.pool] && c.last.Before(at) {
			delete(r.counts, s)
		}
	}
}

// send sends all counts.
func (r *refusals) send(s series, out chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, c := range r.counts {
		family := ""
		if at.family != 0 {
			family = strconv.Itoa(at.family)
		}
		s.send(out, shortages, c.n, at.pool, family, at.reason)
	}
	for name, n := range r.failures {
		s.send(out, assignFailures, n, name)
	}
}

func family4or6(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
