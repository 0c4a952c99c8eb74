package servicealloc

// A claims records the holder of each address and port. If several owners were loaded
// with an address or port, the first one holds it; the others wait in the order of
// loading.
type claims struct {
	holders map[subject]*record
	waiting map[subject]*ordered[*record] // behind the holder
}

func newClaims(size int) claims {
	return claims{make(map[subject]*record, size), map[subject]*ordered[*record]{}}
}

// has reports whether rec holds s or waits for it.
func (c *claims) has(s subject, rec *record) bool {
	w := c.waiting[s]
	return c.holders[s] == rec || w != nil && w.has(rec)
}

// count returns how many records hold s or wait for it.
func (c *claims) count(s subject) int {
	switch w := c.waiting[s]; {
	case w != nil:
		return 1 + w.len()
	case c.holders[s] != nil:
		return 1
	}
	return 0
}

// claim makes rec the holder of s, or a further claimant if another record holds s.
func (r *Registry) claim(s subject, rec *record) {
	switch r.claims.holders[s] {
	case rec:
		return
	case nil:
		r.claims.holders[s] = rec
		r.ranges.mark(s, true)
		return
	}
	w := r.claims.waiting[s]
	if w == nil {
		w = &ordered[*record]{}
		r.claims.waiting[s] = w
	}
	w.add(rec)
}

// unclaim ends rec's claim to s. The next claimant, if any, becomes the holder.
func (r *Registry) unclaim(s subject, rec *record) {
	w := r.claims.waiting[s]
	switch {
	case r.claims.holders[s] != rec:
		if w != nil {
			w.remove(rec)
		}
	case w != nil:
		r.claims.holders[s] = w.items[0]
		w.remove(w.items[0])
	default:
		delete(r.claims.holders, s)
		r.ranges.mark(s, false)
	}
	if w != nil && w.len() == 0 {
		delete(r.claims.waiting, s)
	}
}

// pass makes to the claimant of s instead of from.
func (r *Registry) pass(s subject, from, to *record) {
	if r.claims.holders[s] != from {
		r.unclaim(s, from)
		r.claim(s, to)
		return
	}
	r.claims.holders[s] = to
	if w := r.claims.waiting[s]; w != nil && w.remove(to) && w.len() == 0 {
		delete(r.claims.waiting, s)
	}
}

// holder returns the record that holds s, nil if there is none.
func (r *Registry) holder(s subject) *record { return r.claims.holders[s] }

func (r *Registry) holderName(s subject) string {
	if rec := r.holder(s); rec != nil {
		return rec.owner
	}
	return ""
}

// ranks returns a function that returns how many records precede rec among the claimants
// of s.
func (c *claims) ranks() func(s subject, rec *record) int {
	known := map[subject]map[*record]int{}
	return func(s subject, rec *record) int {
		if c.holders[s] == rec {
			return 0
		}
		if known[s] == nil {
			known[s] = map[*record]int{}
			for i, o := range c.waiting[s].list() {
				known[s][o] = i + 1
			}
		}
		return known[s][rec]
	}
}
