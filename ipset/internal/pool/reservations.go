package pool

import (
	"cmp"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Reservations are kept one by one, because each has a reason of its own. The addresses that they keep back together are derived from
// them, as sorted ranges, once for each revision.

// CheckReservations returns a copy of some reservations in the form that their record keeps, with times in whole seconds of UTC. It
// refuses impossible reservations.
func CheckReservations(field string, rs []alloc.Reservation) ([]alloc.Reservation, error) {
	if _, err := alloc.ReservedSet(rs); err != nil {
		return nil, cause.As(field, err)
	}
	rs = slices.Clone(rs)
	for i := range rs {
		r := &rs[i]
		for what, text := range map[string]string{"Note": r.Note, "By": r.By} {
			if len(text) > cause.MaxName || !utf8.ValidString(text) {
				return nil, cause.Invalid(field, "%s of %s is not UTF-8 of at most %d bytes", what, r.Range, cause.MaxName)
			}
		}
		if at := r.Since.Unix(); !r.Since.IsZero() && (at < 1 || at > math.MaxUint32) {
			return nil, cause.Invalid(field, "Since of %s is not from 1970 to 2106", r.Range)
		}
		if !r.Since.IsZero() {
			r.Since = time.Unix(r.Since.Unix(), 0).UTC()
		}
	}
	return rs, nil
}

// Reserve adds reservations that have been checked. The last reservation of a range and By replaces the earlier ones. A
// reservation without a time gets the time of its equal in was, or else now.
func (c *Catalog) Reserve(rs, was []alloc.Reservation, now int64) {
	all := make([]alloc.Reservation, 0, len(rs)+len(c.Reserved))
	for _, r := range slices.Backward(rs) {
		if r.Since.IsZero() {
			r.Since = wire.UnstampSeconds(wire.Seconds(now))
			if i, found := slices.BinarySearchFunc(was, r, compareReserved); found && was[i].Note == r.Note {
				r.Since = was[i].Since
			}
		}
		all = append(all, r)
	}
	all = append(all, c.Reserved...)
	slices.SortStableFunc(all, compareReserved)
	c.Reserved = slices.CompactFunc(all, func(a, b alloc.Reservation) bool { return compareReserved(a, b) == 0 })
}

// Unreserve takes the ranges of some reservations out of the reservations of the same By; without a By, out of all. It removes reservations
// that are made again instead of cutting them, so a repeated call leaves no parts of them.
func (c *Catalog) Unreserve(rs, again []alloc.Reservation) {
	whole := make(map[alloc.Reservation]bool, len(again))
	key := func(r alloc.Reservation) alloc.Reservation { return alloc.Reservation{Range: r.Range, By: r.By} }
	for _, r := range again {
		whole[key(r)] = true
	}
	c.Reserved = slices.DeleteFunc(slices.Clone(c.Reserved), func(r alloc.Reservation) bool { return whole[key(r)] })
	for _, r := range rs {
		var left []alloc.Reservation
		for _, is := range c.Reserved {
			if r.By != "" && r.By != is.By || !r.Range.Overlaps(is.Range) {
				left = append(left, is)
				continue
			}
			if is.Range.From().Less(r.Range.From()) {
				part := is
				part.Range = netipx.IPRangeFrom(is.Range.From(), r.Range.From().Prev())
				left = append(left, part)
			}
			if r.Range.To().Less(is.Range.To()) {
				part := is
				part.Range = netipx.IPRangeFrom(r.Range.To().Next(), is.Range.To())
				left = append(left, part)
			}
		}
		slices.SortFunc(left, compareReserved)
		c.Reserved = slices.CompactFunc(left, func(a, b alloc.Reservation) bool { return compareReserved(a, b) == 0 })
	}
}

// SameReservations reports whether two lists are equal.
func SameReservations(a, b []alloc.Reservation) bool {
	return slices.EqualFunc(a, b, func(x, y alloc.Reservation) bool {
		return x.Range == y.Range && x.Note == y.Note && x.By == y.By && x.Since.Equal(y.Since)
	})
}

// compareReserved orders reservations by first and last address, then By.
func compareReserved(a, b alloc.Reservation) int {
	return cmp.Or(a.Range.From().Compare(b.Range.From()), a.Range.To().Compare(b.Range.To()), cmp.Compare(a.By, b.By))
}

// keptBack returns the addresses of some reservations. They are in order, unless a record is damaged or a program made it.
func keptBack(rs []alloc.Reservation) (AddrRanges, error) {
	all := make(AddrRanges, 0, len(rs))
	for i, r := range rs {
		from, to := r.Range.From(), r.Range.To()
		if !r.Range.IsValid() || from.Is4In6() || from.Zone() != "" || i > 0 && from.Less(rs[i-1].Range.From()) {
			set, err := alloc.ReservedSet(rs)
			if err != nil {
				return nil, err
			}
			return set.Ranges(), nil
		}
		if k := len(all) - 1; k >= 0 && (!all[k].To().Less(from) || all[k].To().Next() == from) {
			if all[k].To().Less(to) {
				all[k] = netipx.IPRangeFrom(all[k].From(), to)
			}
		} else {
			all = append(all, r.Range)
		}
	}
	return all, nil
}

// codeReserved codes a reservation. Of many, most have neither a note nor a By; these take one byte more than their addresses and time.
func codeReserved(w *wire.Coder, r *alloc.Reservation) {
	codeAddrs(w, &r.Range)
	note, by, since := r.Note != "", r.By != "", !r.Since.IsZero()
	w.Flags(&note, &by, &since)
	if note {
		wire.String(w, &r.Note)
	}
	if by {
		wire.String(w, &r.By)
	}
	if since {
		at := r.Since.Unix()
		if wire.Uint(w, &at); at > math.MaxUint32 {
			w.Fail("time of a reservation")
		}
		if !w.Writes {
			r.Since = time.Unix(at, 0).UTC()
		}
	}
}
