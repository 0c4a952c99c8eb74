package bitmap_test

import "testing"

// The counts of 2^64 ordinals saturate at MaxUint64, one more than which they
// are; every smaller count is exact, and Full tells the two apart.
func TestSaturatingCounts(t *testing.T) {
	const half = uint64(1) << 63
	b := newSet(top)
	count := func(when string, want uint64, full, empty bool) {
		t.Helper()
		if b.Count() != want || b.Full() != full || b.Empty() != empty || b.CountRange(0, top) != want {
			t.Fatalf("%s: Count %d, CountRange %d, Full %v, Empty %v; want %d, %v, %v",
				when, b.Count(), b.CountRange(0, top), b.Full(), b.Empty(), want, full, empty)
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(when string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Fatalf("%s: changed %d, want %d", when, got, want)
		}
	}
	count("untouched", 0, false, true)
	changed("clear an untouched set", b.ClearRange(0, top), 0)
	changed("set all", b.SetRange(0, top), top)
	count("full", top, true, false)
	changed("set all again", b.SetRange(0, top), 0)
	count("full again", top, true, false)
	changed("clear all", b.ClearRange(0, top), top)
	count("empty", 0, false, true)
	changed("clear all again", b.ClearRange(0, top), 0)

	changed("set the lower half", b.SetRange(0, half-1), half)
	count("half", half, false, false)
	changed("set all on top", b.SetRange(0, top), half)
	count("full by halves", top, true, false)
	changed("clear the upper half", b.ClearRange(half, top), half)
	changed("set all but the last", b.SetRange(0, top-1), half-1)
	count("one short", top, false, false) // exact: 2^64-1
	if !b.Set(top) || b.Set(top) {
		t.Fatal("Set of the last ordinal")
	}
	count("full by one", top, true, false)
	if !b.Clear(5) || b.Clear(5) {
		t.Fatal("Clear of one ordinal")
	}
	count("one short elsewhere", top, false, false)
	changed("set all, one missing", b.SetRange(0, top), 1)
	changed("clear all but the last", b.ClearRange(0, top-1), top)
	count("one", 1, false, false)
	changed("clear all, one set", b.ClearRange(0, top), 1)
	count("empty again", 0, false, true)
	changed("set all, one by one range", b.SetRange(1, top), top)
	changed("and the first", b.SetRange(0, 0), 1)
	count("full at last", top, true, false)
	changed("clear from a full set, one left", b.ClearRange(0, top-1), top)
}

// Ranks in a full and an empty set of 2^64.
func TestRanksOfTheWholeSpace(t *testing.T) {
	b := newSet(top)
	for _, touched := range []bool{false, true} {
		if touched {
			b.Set(9)
			b.Clear(9)
		}
		for _, i := range []uint64{0, 1, 1 << 63, top - 1, top} {
			if x, ok := b.SelectClear(i); !ok || x != i {
				t.Errorf("SelectClear(%d) of an empty set = %d %v", i, x, ok)
			}
			if x, ok := b.Select(i); ok {
				t.Errorf("Select(%d) of an empty set = %d", i, x)
			}
			if b.Rank(i) != 0 {
				t.Errorf("the rank of %d in an empty set is %d", i, b.Rank(i))
			}
		}
	}
	b.SetRange(0, top)
	for _, i := range []uint64{0, 1, 1 << 63, top - 1, top} {
		if x, ok := b.Select(i); !ok || x != i {
			t.Errorf("Select(%d) of a full set = %d %v", i, x, ok)
		}
		if x, ok := b.SelectClear(i); ok {
			t.Errorf("SelectClear(%d) of a full set = %d", i, x)
		}
		if b.Rank(i) != i {
			t.Errorf("the rank of %d in a full set is %d", i, b.Rank(i))
		}
	}
	for _, r := range [][3]uint64{{1, top, top}, {0, top - 1, top}, {0, 1<<63 - 1, 1 << 63}, {top, top, 1}, {0, top, top}} {
		if got := b.CountRange(r[0], r[1]); got != r[2] {
			t.Errorf("CountRange(%d, %d) of a full set = %d, want %d", r[0], r[1], got, r[2])
		}
	}
}
