package alloc

import (
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Reservation is a range that automatic assignment never takes. Reservations may overlap:
// an address is reserved as long as any of them contains it. Two reservations with the
// same Range and By count as one.
type Reservation struct {
	Range netipx.IPRange `json:"range"`
	// Note is the reason, and By the person, program or import that made the reservation.
	// Both are UTF-8 of at most 1,024 bytes.
	Note string `json:"note,omitempty"`
	By   string `json:"by,omitempty"`
	// Since is when the range was reserved, in whole seconds from 1970 to 2106. If it is
	// zero, the call sets it to the time of the call, or keeps the time of the
	// reservation with the same Range, By and Note.
	Since time.Time `json:"since,omitzero"`
}

// ReservedSet returns the addresses of some reservations. It fails with
// [ipalloc.ErrInvalid] for a range that cannot be reserved: an empty range, or a range
// with a zone or 4-in-6 addresses.
func ReservedSet(rs []Reservation) (*netipx.IPSet, error) {
	var sb netipx.IPSetBuilder
	for _, r := range rs {
		if !r.Range.IsValid() || r.Range.From().Is4In6() || r.Range.From().Zone() != "" {
			return nil, cause.Op("check", cause.Invalid("Range", "%s is not a range of plain addresses", r.Range))
		}
		sb.AddRange(r.Range)
	}
	return sb.IPSet()
}

// Reservations returns a reservation without a note for each range.
func Reservations(ranges ...netipx.IPRange) []Reservation {
	var rs []Reservation
	for _, r := range ranges {
		rs = append(rs, Reservation{Range: r})
	}
	return rs
}
