package report_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{report.Duration(0.5), "0.500 ns"}, {report.Duration(4.711), "4.71 ns"}, {report.Duration(999), "999 ns"},
		{report.Duration(999.6), "1.00 us"}, {report.Duration(72.3e6), "72.3 ms"}, {report.Duration(1.25e9), "1.25 s"},
		{report.Times(0.987), "0.987x"}, {report.Times(15.21), "15.2x"}, {report.Times(999), "999x"}, {report.Times(1234567), "1,234,567x"},
		{report.Count(0.0049), "0"}, {report.Count(0.14), "0.140"}, {report.Count(64), "64.0"}, {report.Count(4152.2), "4,152"},
		{report.Size(12), "12.0 B"}, {report.Size(4567), "4.57 kB"}, {report.Size(5e6), "5.00 MB"}, {report.Size(1.42e9), "1.42 GB"},
		{report.Whole(12), "12"}, {report.Whole(160000), "160,000"}, {report.OrDash(false, "x"), "-"}, {report.OrDash(true, "x"), "x"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestAligned(t *testing.T) {
	got := report.Aligned([][]string{{"of", "ours"}, {"a row", "1 µs"}})
	want := []string{
		"| of    | ours |",
		"|-------|-----:|",
		"| a row | 1 µs |",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// The text between the comments is replaced, as often as asked; a file without them
// stays as it is.
func TestPlace(t *testing.T) {
	const begin, end = "<!-- x:begin -->", "<!-- x:end -->"
	p := report.Place{File: filepath.Join(t.TempDir(), "README.md"), Name: "x"}
	if p.Check() == nil || p.Refresh("new") == nil {
		t.Error("there is no file")
	}
	write := func(s string) {
		if err := os.WriteFile(p.File, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("head\n" + begin + "\nold\n" + end + "\ntail\n")
	for range 2 { // the second time finds what the first one wrote
		if err := p.Refresh("new"); err != nil {
			t.Fatal(err)
		}
		got, _ := os.ReadFile(p.File)
		if want := "head\n" + begin + "\nnew\n" + end + "\ntail\n"; string(got) != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	for _, s := range []string{"", begin, end + begin} {
		write(s)
		if p.Check() == nil || p.Refresh("new") == nil {
			t.Errorf("%q has no two comments", s)
		}
		if got, _ := os.ReadFile(p.File); string(got) != s {
			t.Errorf("%q was changed to %q", s, got)
		}
	}
}
