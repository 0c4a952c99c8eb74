package addrmap

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

var update = flag.Bool("update", false, "write the golden files")

// site has every state.
func site() *Space {
	s := space("10.0.0.0/22", 26,
		span("10.0.0.0/26", Used, "host:a"), span("10.0.0.64/27", Used, "host:a"), span("10.0.0.96/27", Idle, "host:a"),
		span("10.0.0.128/28", Used, "host:b"), span("10.0.0.144/29", Borrowed, "host:c"), span("10.0.0.152/29", Cooling, "host:b"),
		span("10.0.0.160/27", Idle, "host:b"), span("10.0.1.0/25", Reserved, ""), span("10.0.1.192/30", Orphan, ""), span("10.0.1.196/30", Idle, ""),
		span("10.0.2.7/32", Leaked, "host:d\x1b[31m"), span("10.0.2.8/29", Idle, "host:d\x1b[31m"))
	s.Name = "pods"
	return s
}

// changed is a comparison.
func changed() *Space {
	return space("10.0.0.0/28", 0, span("10.0.0.0/30", Same, "a"), span("10.0.0.4/31", Added, "b"), span("10.0.0.6/32", Removed, "c"), span("10.0.0.8/29", Changed, "d"))
}

// sparse is an IPv6 pool with blocks far apart.
func sparse() *Space {
	return space("2001:db8::/48", 122, span("2001:db8::40/122", Used, "a"), span("2001:db8:0:7::/127", Used, "b"), span("2001:db8:0:7::2/127", Cooling, "b"),
		span("2001:db8:0:7::4/126", Idle, "b"))
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		name    string
		p       Picture
		columns int
	}{
		{"states", Picture{Space: site()}, 0},
		{"a part of it", Picture{Space: site(), Prefix: netip.MustParsePrefix("10.0.1.0/24")}, 0},
		{"narrow", Picture{Space: site()}, 20},
		{"by label", Picture{Space: site(), ByLabel: true}, 0},
		{"comparison", Picture{Space: changed()}, 0},
		{"rows", Picture{Space: site(), Rows: true}, 0},
		{"sparse", Picture{Space: sparse()}, 0},
		{"empty", Picture{Space: space("fd00::/8", 64)}, 0},
		{"one address", Picture{Space: space("10.0.0.1/32", 0)}, 0},
		{"odd", Picture{Space: space("10.0.0.0/27", 0, span("10.0.0.0/30", Used, "a"))}, 0},
		{"everything", Picture{Space: space("::/0", 0)}, 0},
	} {
		fmt.Fprintf(&out, "== %s\n", c.name)
		if err := Text(&out, c.p, c.columns); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	name := filepath.Join("testdata", "text.txt")
	if *update {
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("run with -update and look at the difference:\n%s", out.String())
	}
}

// A cell has as much of its colour as it has addresses of the state: 3 of 64 that cool are not painted like 64.
func TestInkIsWhatIsTaken(t *testing.T) {
	for _, dark := range []bool{false, true} {
		few, all, free := stateColor(Cooling, 1, dark), stateColor(Cooling, 8, dark), stateColor(Free, 0, dark)
		if few == all || few == free || all != stateColors[Cooling] {
			t.Errorf("dark %v: %v of %v", dark, few, all)
		}
	}
	if stateColor(Leaked, 1, true) != stateColors[Leaked] {
		t.Error("a leak candidate fades")
	}
}

func TestPictureRefuses(t *testing.T) {
	for _, p := range []Picture{
		{Space: site(), Prefix: netip.MustParsePrefix("10.0.4.0/24")},
		{Space: site(), Prefix: netip.MustParsePrefix("10.0.0.0/21")},
		{Space: site(), Prefix: netip.MustParsePrefix("10.0.1.1/24")},
	} {
		if Text(io.Discard, p, 0) == nil || SVG(io.Discard, SVGStyle{}, p) == nil {
			t.Errorf("%+v", p)
		}
	}
}

// svgOf parses a picture and returns the titles of its squares.
func svgOf(t *testing.T, style SVGStyle, pictures ...Picture) (text string, titles []string) {
	t.Helper()
	var out bytes.Buffer
	if err := SVG(&out, style, pictures...); err != nil {
		t.Fatal(err)
	}
	text = out.String()
	var width, height int
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if err == io.EOF {
			return text, titles
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := map[string]string{}
		for _, a := range start.Attr {
			attr[a.Name.Local] = a.Value
		}
		switch start.Name.Local {
		case "script", "image", "a", "foreignObject":
			t.Errorf("there is a %s", start.Name.Local)
		case "svg":
			width, _ = strconv.Atoi(attr["width"])
			height, _ = strconv.Atoi(attr["height"])
		case "title":
			title, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			titles = append(titles, string(title.(xml.CharData)))
		case "path":
			var x, y, w, h int
			if n, _ := fmt.Sscanf(attr["d"], "M%d %dh%dv%d", &x, &y, &w, &h); n == 4 && (x+w > width || y+h > height) {
				t.Errorf("a square ends at %d, %d, the picture at %d, %d", x+w, y+h, width, height)
			}
		}
	}
}

func TestSVG(t *testing.T) {
	text, titles := svgOf(t, SVGStyle{}, Picture{Space: site()}, Picture{Space: changed()}, Picture{Space: sparse()}, Picture{Space: site(), ByLabel: true})
	all := strings.Join(titles, "\n")
	for _, want := range []string{"10.0.0.0/26 used 64 of 64, host:a", "10.0.0.128/26 used 32 of 64, host:b and 1 more", "10.0.1.192/26 orphan 4 of 64",
		"10.0.2.0/26 leak candidate 1 of 64, host:d?[31m", "10.0.3.0/24 free", "10.0.0.6/32 removed 1 of 1, c"} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("no cell says %q:\n%s", want, all)
		}
	}
	for _, want := range []string{"pods 10.0.0.0/22  12.", "only cells with something in them are drawn, 2 of 2^74", "prefers-color-scheme:dark"} {
		if !strings.Contains(text, want) {
			t.Errorf("no text says %q", want)
		}
	}
}

// A /8 with 60,000 blocks of as many hosts all over it stays under 1 MB.
func TestSVGSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	s := &Space{Pool: netip.MustParsePrefix("10.0.0.0/8"), Finest: 26, Name: "pods"}
	base, _ := Of(s.Pool)
	blocks := 0
	for i := range uint64(1 << 18) {
		if rng.IntN(1<<18) >= 60_000 {
			continue
		}
		lo := base.Add(addr.U128{Lo: i * 64})
		used := uint64(rng.IntN(63))
		s.Add(Span{lo, lo.Add(addr.U128{Lo: used}), Used, fmt.Sprintf("host:node-%d", blocks)})
		s.Add(Span{lo.Add(addr.U128{Lo: used + 1}), lo.Add(addr.U128{Lo: 63}), Idle, fmt.Sprintf("host:node-%d", blocks)})
		blocks++
	}
	text, titles := svgOf(t, SVGStyle{}, Picture{Space: s})
	if len(text) > 1_000_000 || len(titles) < 4000 {
		t.Errorf("%d bytes, %d cells for %d blocks", len(text), len(titles), blocks)
	}
	t.Logf("%d blocks: %d bytes, %d cells", blocks, len(text), len(titles))
}
