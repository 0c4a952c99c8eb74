package store

import "fmt"

// check verifies the invariants of the table; no revision may be above rev.
func (s *sorted) check(rev uint64) error {
	n, last := 0, ""
	for a, nd := range s.nodes {
		if len(nd.pages) == 0 || len(nd.pages) > nodeMax || len(nd.froms) != len(nd.pages) || nd.froms[0] != s.froms[a] {
			return fmt.Errorf("node %d of %d pages and %d separators", a, len(nd.pages), len(nd.froms))
		}
		for i, p := range nd.pages {
			from := nd.froms[i]
			if from == "" != (a == 0 && i == 0) || n > 0 && from <= last {
				return fmt.Errorf("separator %q after key %q", from, last)
			}
			if p.n == 0 || p.n > pageMax {
				return fmt.Errorf("a page of %d records", p.n)
			}
			if err := p.check(); err != nil {
				return fmt.Errorf("page %q: %w", from, err)
			}
			s.pk.reset()
			s.pk.loadAll(p)
			for i := range s.pk.recs {
				v := &s.pk.recs[i]
				key := string(s.pk.keyOf(v))
				if key <= last || key < from || v.rev == 0 || v.rev > min(rev, p.last) {
					return fmt.Errorf("record %q at revision %d after %q", key, v.rev, last)
				}
				last = key
				n++
			}
		}
	}
	if n != s.n || len(s.froms) != len(s.nodes) {
		return fmt.Errorf("%d records, counted as %d", n, s.n)
	}
	return nil
}

// check verifies the counts of a page and that no two of its records share bytes.
func (p *page) check() error {
	used, raw, large := p.head(), 0, 0
	taken := make([]bool, p.end)
	for i := range int(p.n) {
		o := p.slot(i)
		n := p.length(o)
		for b := o; b < o+n; b++ {
			if b < p.head() || b >= int(p.end) || taken[b] {
				return fmt.Errorf("record %d at %d to %d of %d", i, o, o+n, p.end)
			}
			taken[b] = true
		}
		used += n
		switch form, _, at := p.key(o); form {
		case formRaw:
			raw++
		case formLarge:
			if large++; !isLarge(len(p.big(at).Key), len(p.big(at).Value)) {
				return fmt.Errorf("record %d is not large", i)
			}
		}
	}
	for _, r := range p.large {
		if r.Key == "" {
			large++
		}
	}
	if used+int(p.waste) != int(p.end) || raw != int(p.raw) || large != len(p.large) || p.free() < 0 {
		return fmt.Errorf("%d bytes in use and %d wasted of %d, %d raw of %d, %d large of %d, %d free", used, p.waste, p.end, raw, p.raw, large, len(p.large), p.free())
	}
	return nil
}
