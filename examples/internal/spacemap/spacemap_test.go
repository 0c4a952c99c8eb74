package spacemap

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func parse(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// every prefix length of both families, as a pool.
func everyPool() []netip.Prefix {
	var out []netip.Prefix
	for bits := range 33 {
		out = append(out, netip.PrefixFrom(netip.MustParseAddr("203.0.113.7"), bits).Masked())
	}
	for bits := range 129 {
		out = append(out, netip.PrefixFrom(netip.MustParseAddr("2001:db8:1:2:3:4:5:6"), bits).Masked())
	}
	return out
}

// half returns the lower or the upper half of a prefix that has one.
func half(p netip.Prefix, upper bool) netip.Prefix {
	b := p.Addr().AsSlice()
	if upper {
		b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits()+1)
}

// block is an office network: a /22 with three classes, nested prefixes, and a hole.
func block() Drawing {
	return Drawing{
		Title:  "office",
		Pool:   netip.MustParsePrefix("192.0.0.0/22"),
		Finest: 30,
		Layers: []Layer{
			{"desks", parse("192.0.0.0/24", "192.0.1.0/26", "192.0.1.128/27")},
			{"phones", parse("192.0.0.128/26", "192.0.2.4/30", "192.0.2.0/30")},
			{"guests & others", parse("192.0.0.192/28", "192.0.3.254/32")},
			{"nobody", nil},
		},
	}
}

// site is an IPv6 pool that is nearly empty, and has three rows of one owner.
func site() Drawing {
	return Drawing{
		Pool: netip.MustParsePrefix("2001:db8::/32"),
		Layers: []Layer{
			{"hosts", parse("2001:db8:8000::1/128", "2001:db8:8000::2/128", "2001:db8:ffff:ffff::/64")},
			{"lab", parse("2001:db8:1000::/36", "2001:db8:2000::/35")},
		},
	}
}

func TestTextGolden(t *testing.T) {
	for name, c := range map[string]struct {
		drawing Drawing
		style   TextStyle
	}{
		"office.txt":         {block(), TextStyle{}},
		"office-ascii.txt":   {block(), TextStyle{ASCII: true, Columns: 16}},
		"office-letters.txt": {block(), TextStyle{Letters: true, Columns: 100, Rows: 3}},
		"office-color.txt":   {block(), TextStyle{Color: true, Letters: true}},
		"site.txt":           {site(), TextStyle{}},
		"site-unfold.txt":    {site(), TextStyle{Unfold: true, ASCII: true}},
		"all-ipv6.txt": {Drawing{Pool: netip.MustParsePrefix("::/0"), Layers: []Layer{
			{"global unicast", parse("2000::/3")}, {"unique local", parse("fc00::/7")}, {"link local", parse("fe80::/10")}, {"multicast", parse("ff00::/8")}, {"loopback", parse("::1/128")},
		}}, TextStyle{}},
		"one-address.txt": {Drawing{Pool: netip.MustParsePrefix("192.0.2.1/32"), Layers: []Layer{{"me", parse("192.0.2.0/24")}}}, TextStyle{}},
		"empty.txt":       {Drawing{Pool: netip.MustParsePrefix("192.0.2.0/28")}, TextStyle{}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Text(&out, c.drawing, c.style); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.Bytes())
		})
	}
}

func TestSVGGolden(t *testing.T) {
	for name, drawings := range map[string][]Drawing{
		"office.svg": {block()},
		"both.svg":   {block(), site()},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := SVG(&out, SVGStyle{Rows: 8}, drawings...); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.Bytes())
		})
	}
}

// painted is the slow twin of grid: it paints one address after the other, each with the longest
// prefix around it.
func painted(d Drawing, cells int) []cell {
	size := 1 << (d.Pool.Addr().BitLen() - d.Pool.Bits())
	out := make([]cell, cells)
	a := d.Pool.Addr()
	for i := range cells {
		have := make([]uint64, len(d.Layers))
		for range size / cells {
			longest, owner := -1, free
			for l, layer := range d.Layers {
				for _, p := range layer.Prefixes {
					if p.Contains(a) && max(p.Bits(), d.Pool.Bits()) >= longest {
						longest, owner = max(p.Bits(), d.Pool.Bits()), l
					}
				}
			}
			if owner != free {
				have[owner]++
				out[i].used.Lo++
			}
			a = a.Next()
		}
		out[i].layer = free
		if out[i].used.Lo > 0 {
			out[i].layer = slices.Index(have, slices.Max(have))
		}
	}
	return out
}

// compare checks a drawing of a small pool against the twin, cells, layers and totals.
func compare(t *testing.T, d Drawing, columns, rows int) {
	t.Helper()
	g, err := newGrid(d, columns, rows)
	if err != nil {
		t.Fatal(err)
	}
	want := painted(d, len(g.cells))
	if !slices.Equal(g.cells, want) {
		t.Fatalf("%+v in %d cells:\n got %v\nwant %v", d, len(want), g.cells, want)
	}
	// Cells of one address each give the exact share of every layer.
	size := 1 << (d.Pool.Addr().BitLen() - d.Pool.Bits())
	of := map[int]int{}
	for _, c := range painted(d, size) {
		of[c.layer]++
	}
	check := func(what string, s share, n int) {
		t.Helper()
		if s.none != (n == 0) || s.all != (n == size) || s.part-float64(n)/float64(size) > 1e-9 || float64(n)/float64(size)-s.part > 1e-9 {
			t.Fatalf("%+v: %s: %+v, want %d of %d", d, what, s, n, size)
		}
	}
	check("total", g.total, size-of[free])
	for l := range d.Layers {
		check(d.Layers[l].Label, g.tallies[l].share, of[l])
	}
}

// Every pair of prefixes, in every assignment to two layers, in pools of 16 addresses cut into
// cells of 1, 2 and 16: nested, equal and disjoint.
func TestGridExhaustive(t *testing.T) {
	for _, pool := range parse("192.0.2.16/28", "2001:db8::ff00/124") {
		within := []netip.Prefix{pool, netip.PrefixFrom(pool.Addr(), pool.Bits()-2).Masked()}
		for i := 0; i < len(within); i++ {
			if p := within[i]; p.Bits() >= pool.Bits() && p.Bits() < p.Addr().BitLen() {
				within = append(within, half(p, false), half(p, true))
			}
		}
		if len(within) != 32 {
			t.Fatalf("%d prefixes", len(within))
		}
		for _, a := range within {
			for _, b := range within {
				for _, layers := range [][]Layer{
					{{"x", []netip.Prefix{a, b}}},
					{{"x", []netip.Prefix{a}}, {"y", []netip.Prefix{b}}},
				} {
					d := Drawing{Pool: pool, Layers: layers}
					compare(t, d, 16, 1)
					d.Finest = pool.Addr().BitLen() - 1
					compare(t, d, 8, 1)
					d.Finest = pool.Bits()
					compare(t, d, 8, 1)
				}
			}
		}
	}
}

func TestGridRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		d := Drawing{Pool: netip.MustParsePrefix("10.0.4.0/23")}
		for l := range 1 + rng.IntN(4) {
			layer := Layer{Label: fmt.Sprint(l)}
			for range rng.IntN(8) {
				a := netip.AddrFrom4([4]byte{10, 0, 4 + byte(rng.IntN(2)), byte(rng.IntN(256))})
				layer.Prefixes = append(layer.Prefixes, netip.PrefixFrom(a, 23+rng.IntN(10)).Masked())
			}
			d.Layers = append(d.Layers, layer)
		}
		compare(t, d, 8<<rng.IntN(4), 1<<rng.IntN(4))
	}
}

// Every pool length of both families: the cells tile the pool, and one address, or one missing, is
// never rounded away.
func TestEveryLength(t *testing.T) {
	for _, pool := range everyPool() {
		hostBits := pool.Addr().BitLen() - pool.Bits()
		one := netip.PrefixFrom(pool.Addr(), pool.Addr().BitLen())
		var rest []netip.Prefix // all but the first address
		for p := pool; p != one; p = half(p, false) {
			rest = append(rest, half(p, true))
		}
		for _, c := range []struct {
			what              string
			prefixes          []netip.Prefix
			none, all         bool
			firstNone, tipAll bool // the first cell has nothing, the last one all
		}{
			{"nothing", nil, true, false, true, false},
			{"one address", []netip.Prefix{one}, false, hostBits == 0, false, hostBits == 0},
			{"all but one", rest, hostBits == 0, false, hostBits <= 10, hostBits > 0},
			{"everything, in pieces", append(slices.Clone(rest), one), false, true, false, true},
			{"everything, at once", []netip.Prefix{pool}, false, true, false, true},
			{"more than everything", []netip.Prefix{netip.PrefixFrom(pool.Addr(), 0).Masked()}, false, true, false, true},
		} {
			d := Drawing{Pool: pool, Layers: []Layer{{c.what, c.prefixes}}}
			g, err := newGrid(d, 0, textRows)
			if err != nil {
				t.Fatal(err)
			}
			if len(g.cells) != 1<<min(hostBits, 10) || len(g.cells)%g.columns != 0 || g.columns > maxColumns {
				t.Fatalf("%v: %d cells in %d columns", pool, len(g.cells), g.columns)
			}
			if g.address(0) != pool.Addr() {
				t.Fatalf("%v: starts at %v", pool, g.address(0))
			}
			for i := 1; i < len(g.cells); i++ {
				if g.lastAddress(i-1).Next() != g.address(i) {
					t.Fatalf("%v: cell %d ends at %v, the next one starts at %v", pool, i-1, g.lastAddress(i-1), g.address(i))
				}
			}
			end := g.lastAddress(len(g.cells) - 1)
			if !pool.Contains(end) || pool.Contains(end.Next()) {
				t.Fatalf("%v: ends at %v", pool, end)
			}
			first, tip := g.share(0), g.share(len(g.cells)-1)
			if g.total.none != c.none || g.total.all != c.all || first.none != c.firstNone || tip.all != c.tipAll {
				t.Errorf("%v, %s: total %+v, first cell %+v, last cell %+v", pool, c.what, g.total, first, tip)
			}
			if g.tallies[0].share.none != c.none || g.tallies[0].share.all != c.all {
				t.Errorf("%v, %s: tally %+v", pool, c.what, g.tallies[0])
			}
			for _, draw := range []func(io.Writer) error{
				func(w io.Writer) error { return Text(w, d, TextStyle{}) },
				func(w io.Writer) error { return SVG(w, SVGStyle{Rows: 2}, d) },
			} {
				if err := draw(io.Discard); err != nil {
					t.Errorf("%v, %s: %v", pool, c.what, err)
				}
			}
		}
	}
}

// A style can't ask for less than a picture: one cell of 2^128 addresses could not be counted.
func TestLeastColumns(t *testing.T) {
	whole := netip.MustParsePrefix("::/0")
	for _, columns := range []int{-1, 1, 7, 8, 15} {
		g, err := newGrid(Drawing{Pool: whole, Layers: []Layer{{"x", []netip.Prefix{whole}}}}, columns, -1)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.cells) != minColumns || !g.total.all {
			t.Errorf("%d columns: %d cells, %+v", columns, len(g.cells), g.total)
		}
	}
}

func TestShareWords(t *testing.T) {
	for _, c := range []struct {
		share share
		level int
		text  string
	}{
		{share{0, true, false}, 0, "0 %"},
		{share{1, false, true}, 4, "100 %"},
		{share{0, false, false}, 1, "<0.1 %"}, // too little for a float64
		{share{1, false, false}, 3, ">99.9 %"},
		{share{0.333, false, false}, 1, "33.3 %"},
		{share{1.0 / 3, false, false}, 2, "33.3 %"},
		{share{0.666, false, false}, 2, "66.6 %"},
		{share{2.0 / 3, false, false}, 3, "66.7 %"},
		{share{0.0010001, false, false}, 1, "0.1 %"},
		{share{0.9989999, false, false}, 3, "99.9 %"},
	} {
		if c.share.level() != c.level || c.share.String() != c.text {
			t.Errorf("%+v: level %d, %q; want %d, %q", c.share, c.share.level(), c.share, c.level, c.text)
		}
	}
}

func TestBadDrawing(t *testing.T) {
	pool := netip.MustParsePrefix("192.0.2.0/24")
	for name, c := range map[string]struct {
		drawing Drawing
		text    string
	}{
		"no pool":         {Drawing{}, "pool invalid Prefix: not a valid address or prefix"},
		"pool host bits":  {Drawing{Pool: netip.MustParsePrefix("192.0.2.1/24")}, "pool 192.0.2.1/24: has host bits set"},
		"pool 4-in-6":     {Drawing{Pool: netip.MustParsePrefix("::ffff:192.0.2.0/120")}, "pool ::ffff:192.0.2.0/120: IPv4-mapped IPv6 (4-in-6); use the IPv4 form"},
		"finest short":    {Drawing{Pool: pool, Finest: 23}, "cells of /23 in the pool 192.0.2.0/24"},
		"finest long":     {Drawing{Pool: pool, Finest: 33}, "cells of /33 in the pool 192.0.2.0/24"},
		"finest negative": {Drawing{Pool: pool, Finest: -1}, "cells of /-1 in the pool 192.0.2.0/24"},
		"zero prefix":     {Drawing{Pool: pool, Layers: []Layer{{"x", []netip.Prefix{{}}}}}, `invalid Prefix of "x": not a valid address or prefix`},
		"host bits":       {Drawing{Pool: pool, Layers: []Layer{{"x", parse("192.0.2.9/28")}}}, `192.0.2.9/28 of "x": has host bits set`},
		"outside":         {Drawing{Pool: pool, Layers: []Layer{{"x", parse("192.0.3.0/28")}}}, `192.0.3.0/28 of "x": outside the pool 192.0.2.0/24`},
		"other family":    {Drawing{Pool: pool, Layers: []Layer{{"x", parse("2001:db8::/64")}}}, `2001:db8::/64 of "x": outside the pool 192.0.2.0/24`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			for _, err := range []error{Text(&out, c.drawing, TextStyle{}), SVG(&out, SVGStyle{}, block(), c.drawing)} {
				if !errors.Is(err, ErrBadDrawing) || err.Error() != "spacemap: bad drawing: "+c.text {
					t.Errorf("error %v\n want %s", err, c.text)
				}
			}
			if out.Len() > 0 {
				t.Errorf("%d bytes written", out.Len())
			}
		})
	}
}

type brokenPipe struct{}

var errPipe = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

func TestWriterError(t *testing.T) {
	if err := Text(brokenPipe{}, block(), TextStyle{}); err != errPipe {
		t.Errorf("Text: %v", err)
	}
	if err := SVG(brokenPipe{}, SVGStyle{}, block()); err != errPipe {
		t.Errorf("SVG: %v", err)
	}
}

// The order in which prefixes are listed is no part of the picture.
func TestOrderIndependent(t *testing.T) {
	a, b := block(), block()
	for i := range b.Layers {
		slices.Reverse(b.Layers[i].Prefixes)
	}
	var outA, outB bytes.Buffer
	for _, c := range []struct {
		d   Drawing
		out *bytes.Buffer
	}{{a, &outA}, {b, &outB}} {
		if err := errors.Join(Text(c.out, c.d, TextStyle{}), SVG(c.out, SVGStyle{}, c.d)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(outA.Bytes(), outB.Bytes()) {
		t.Error("other bytes for another order of prefixes")
	}
}

// Names of owners are anyone's: nothing in them may reach the terminal or the XML as more than text.
func TestHostileLabels(t *testing.T) {
	d := block()
	d.Title = "</text><script>alert(1)</script>\x00\x1b[2J"
	for i := range d.Layers {
		d.Layers[i].Label = "\x1b]0;x\a<a href=\"javascript:\">&\xff\u202e\n" + fmt.Sprint(i)
	}
	var text, svg bytes.Buffer
	if err := errors.Join(Text(&text, d, TextStyle{}), SVG(&svg, SVGStyle{}, d)); err != nil {
		t.Fatal(err)
	}
	for _, r := range text.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%q in the text", r)
		}
	}
	if n := strings.Count(text.String(), "\n"); n != 2+4+1+2+len(d.Layers) { // head, rows, blank, scale and shades, layers
		t.Errorf("%d lines:\n%s", n, text.String())
	}
	decoder := xml.NewDecoder(&svg)
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && !slices.Contains([]string{"svg", "rect", "text", "title", "path"}, e.Name.Local) {
			t.Errorf("element %q", e.Name.Local)
		}
	}
}

// Colour adds escape sequences and nothing else, and is off again at the end of every line; ASCII
// is ASCII.
func TestStyles(t *testing.T) {
	draw := func(d Drawing, s TextStyle) string {
		var out bytes.Buffer
		if err := Text(&out, d, s); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	escapes := regexp.MustCompile("\x1b\\[[0-9]*m")
	for _, d := range []Drawing{block(), site()} {
		for _, s := range []TextStyle{{Letters: true}, {Letters: true, ASCII: true}} {
			plain := draw(d, s)
			s.Color = true
			colored := draw(d, s)
			if got := escapes.ReplaceAllString(colored, ""); got != plain {
				t.Errorf("without its colours:\n%s\nwant\n%s", got, plain)
			}
			for _, line := range strings.Split(colored, "\n") {
				if all := escapes.FindAllString(line, -1); len(all) > 0 && all[len(all)-1] != "\x1b[0m" {
					t.Errorf("colour left on: %q", line)
				}
			}
			if s.ASCII {
				if i := strings.IndexFunc(plain, func(r rune) bool { return r > '~' }); i >= 0 {
					t.Errorf("not ASCII: %q", plain[i:])
				}
			}
		}
	}
	for _, line := range strings.Split(draw(site(), TextStyle{}), "\n") {
		if strings.TrimRight(line, " ") != line {
			t.Errorf("white space at the end of %q", line)
		}
	}
}
