package main

import (
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// chromium returns the path of a browser without a screen.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED, there is no Chromium here")
	return ""
}

// screenshot renders an SVG file, for a reader who prefers dark or light.
func screenshot(t *testing.T, file string, dark bool) image.Image {
	t.Helper()
	out := filepath.Join(t.TempDir(), "shot.png")
	scheme := "1"
	if dark {
		scheme = "0"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium(t), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1",
		"--blink-settings=preferredColorScheme="+scheme, "--user-data-dir="+t.TempDir(), "--window-size=900,1400", "--screenshot="+out, "file://"+file)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// most returns the colour that most pixels of a rectangle have.
func most(img image.Image, r image.Rectangle) string {
	count := map[string]int{}
	best := ""
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			red, green, blue, _ := img.At(x, y).RGBA()
			c := fmt.Sprintf("#%02x%02x%02x", red>>8, green>>8, blue>>8)
			if count[c]++; count[c] > count[best] {
				best = c
			}
		}
	}
	return best
}

// A browser draws each cell in the colour of its state, for light and for dark.
func TestMapInChromium(t *testing.T) {
	chromium(t)
	name := newBolt(t, func(e *ipset.Engine) {
		cluster(t)(e)
		ctx := t.Context()
		if _, err := e.Operator().SetReservations(ctx, reserving("10.1.0.64/28")); err != nil {
			t.Fatal(err)
		}
		if _, err := e.DisownBlocks(ctx, alloc.DisownArgs{Owner: alloc.HostOwner("b")}); err != nil {
			t.Fatal(err)
		}
	})
	dir := t.TempDir()
	env := map[string]string{"IPAMCTL_STORE": name}
	file := filepath.Join(dir, "candidates.json")
	held := lookupIn(t, env, "10.1.0.48")
	leaked := candidates{Store: "x", All: []candidate{{Address: netip.MustParseAddr("10.1.0.48"), Sequence: held.Sequence, Since: noon}}}
	if err := leaked.write(file); err != nil {
		t.Fatal(err)
	}
	svg := filepath.Join(dir, "map.svg")
	if status, _, stderr := call(t, env, "map", "pods", "--candidates", file, "--svg", svg); status != exitOK {
		t.Fatal(stderr)
	}
	text, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	squares := regexp.MustCompile(`<path d="M(\d+) (\d+)h(\d+)v(\d+)h-\d+z"><title>(\S+) ([a-z ]*[a-z])`).FindAllStringSubmatch(string(text), -1)
	colors := map[bool]map[string]string{
		false: {"free": "#f2f2f2", "idle": "#dbe4ea", "used": "#003f6b", "reserved": "#999999", "cooling": "#009e73", "borrowed": "#e69f00", "orphan": "#cc79a7", "leak candidate": "#d55e00"},
		true:  {"free": "#26292e", "idle": "#39434b", "used": "#bfe4ff", "reserved": "#999999", "cooling": "#009e73", "borrowed": "#e69f00", "orphan": "#cc79a7", "leak candidate": "#d55e00"},
	}
	for dark, want := range colors {
		img := screenshot(t, svg, dark)
		seen := map[string]bool{}
		for _, q := range squares {
			var x, y, w, h int
			if _, err := fmt.Sscan(strings.Join(q[1:5], " "), &x, &y, &w, &h); err != nil {
				t.Fatal(err)
			}
			prefix, state := q[5], q[6]
			if got := most(img, image.Rect(x, y, x+w, y+h).Inset(2)); got != want[state] {
				t.Errorf("dark %v: %s, %s, is %s, want %s", dark, prefix, state, got, want[state])
			}
			seen[state] = true
		}
		if len(seen) != len(want) {
			t.Errorf("only %v were drawn", seen)
		}
	}
}

// lookupIn returns what show says of an address.
func lookupIn(t *testing.T, env map[string]string, ip string) (v addressView) {
	t.Helper()
	_, out, _ := call(t, env, "show", ip, "-o", "json")
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
