package ipset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// noted returns a reservation with a note.
func noted(r, by, note string) alloc.Reservation {
	return alloc.Reservation{Range: netipx.MustParseIPRange(r), By: by, Note: note}
}

// reservedText returns the reservations of a space, a line each.
func reservedText(t *testing.T, w *world) string {
	t.Helper()
	rs, err := w.Operator().Reservations(bg)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range rs {
		lines = append(lines, fmt.Sprintf("%s %s %q %d", r.Range, r.By, r.Note, int(r.Since.Sub(t0.Truncate(time.Second)).Seconds())))
	}
	return strings.Join(lines, "\n")
}

// Reservations keep their notes beside neighbours and across overlaps, each has its time, and a repeated call changes nothing.
func TestReservationsHaveNotesAndTimes(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28))
	change := func(c alloc.PoolChanges, want ...string) {
		t.Helper()
		for range 2 { // the second time changes nothing
			if err := w.Operator().ChangePools(bg, c); err != nil {
				t.Fatal(err)
			}
			if got := reservedText(t, w); got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
			w.clock.add(10 * time.Second)
		}
	}
	change(alloc.PoolChanges{Reserve: []alloc.Reservation{noted("10.0.0.4-10.0.0.7", "ann", "printers"), noted("10.0.0.0-10.0.0.3", "", "routers")}},
		`10.0.0.0-10.0.0.3  "routers" 0`, `10.0.0.4-10.0.0.7 ann "printers" 0`)
	change(alloc.PoolChanges{Reserve: []alloc.Reservation{noted("10.0.0.2-10.0.0.5", "import", "unknown"), noted("10.0.0.4-10.0.0.7", "ann", "cameras")}},
		`10.0.0.0-10.0.0.3  "routers" 0`, `10.0.0.2-10.0.0.5 import "unknown" 20`, `10.0.0.4-10.0.0.7 ann "cameras" 20`)
	if got := w.assign(want("h", 16, "p")).V4; len(got) != 8 || got[0].Address.String() != "10.0.0.8" {
		t.Errorf("assigned %v", got)
	}
	change(alloc.PoolChanges{Unreserve: []alloc.Reservation{noted("10.0.0.0-10.0.0.15", "import", "")}},
		`10.0.0.0-10.0.0.3  "routers" 0`, `10.0.0.4-10.0.0.7 ann "cameras" 20`)
	change(alloc.PoolChanges{Unreserve: alloc.Reservations(netipx.MustParseIPRange("10.0.0.3-10.0.0.5"))},
		`10.0.0.0-10.0.0.2  "routers" 0`, `10.0.0.6-10.0.0.7 ann "cameras" 20`)
	if got := len(w.assign(want("h", 16, "q")).V4); got != 3 {
		t.Errorf("assigned %d of the three that are no longer reserved", got)
	}
	// Those that are reserved again are whole, and keep their time.
	change(alloc.PoolChanges{Unreserve: alloc.Reservations(netipx.MustParseIPRange("10.0.0.0-10.0.0.6")), Reserve: []alloc.Reservation{noted("10.0.0.6-10.0.0.7", "ann", "cameras")}},
		`10.0.0.6-10.0.0.7 ann "cameras" 20`)
	live, err := w.Operator().SetReservations(bg, []alloc.Reservation{noted("10.0.0.6-10.0.0.7", "ann", "cameras"), noted("10.0.0.9-10.0.0.10", "ann", "")})
	if err != nil || len(live) != 2 || reservedText(t, w) != "10.0.0.6-10.0.0.7 ann \"cameras\" 20\n10.0.0.9-10.0.0.10 ann \"\" 100" {
		t.Errorf("%d live, %v\n%s", len(live), err, reservedText(t, w))
	}
	for _, wrong := range []alloc.Reservation{{}, noted("10.0.0.1-10.0.0.2", "\xff", ""), noted("10.0.0.1-10.0.0.2", "", strings.Repeat("x", 1025)), {Range: netipx.MustParseIPRange("10.0.0.1-10.0.0.1"), Since: time.Unix(-1, 0)}} {
		_, err := w.Operator().SetReservations(bg, []alloc.Reservation{wrong})
		if !errors.Is(err, ipalloc.ErrInvalid) || !errors.Is(w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: []alloc.Reservation{wrong}}), ipalloc.ErrInvalid) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// A change of the reservations is reported with what they were, also if a note alone differs; the note of a pool stays unless another replaces it.
func TestNotesAreReported(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28))
	from := w.rev() // what the first commit after it replaces is not known
	if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: []alloc.Reservation{noted("10.0.0.4-10.0.0.7", "ann", "printers")}}); err != nil {
		t.Fatal(err)
	}
	p := poolOf("a", "10.0.0.0/28", 28)
	p.Note = "for the lab"
	for _, f := range []func() error{
		func() error {
			return w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: []alloc.Reservation{noted("10.0.0.4-10.0.0.7", "ann", "cameras")}})
		},
		func() error { return w.UpdatePool(bg, p) },
		func() error { return w.AddPool(bg, poolOf("a", "10.0.0.0/28", 28)) },
		func() error {
			return w.UpdatePool(bg, alloc.Pool{Name: "a", Prefix: p.Prefix, BlockBits: 28, Manual: true})
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	if pools, err := w.Pools(bg); err != nil || pools[0].Note != "for the lab" || !pools[0].Manual {
		t.Errorf("%+v, %v", pools, err)
	}
	var kinds []alloc.ChangeKind
	for c, err := range w.Changes(bg, from) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range c.Changes {
			if ch.Unknown {
				continue
			}
			if kinds = append(kinds, ch.Kind); ch.Kind == alloc.ReservationsChanged && (ch.FormerReserved[0].Note != "printers" || ch.Reserved[0].Note != "cameras") {
				t.Errorf("%+v", ch)
			}
		}
		if len(kinds) == 3 {
			break
		}
	}
	if want := []alloc.ChangeKind{alloc.ReservationsChanged, alloc.PoolChanged, alloc.PoolChanged}; !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
}
