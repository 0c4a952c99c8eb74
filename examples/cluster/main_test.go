package main

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	// timeLine is the one line of the output that is not the same in every run.
	timeLine = regexp.MustCompile(`(?m)^time .*$`)
	// snapshotSize is the same in every run, but for cidrset to choose.
	snapshotSize = regexp.MustCompile(`from [0-9]+ bytes of snapshot`)
)

// start runs the program.
func start(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	masked := timeLine.ReplaceAllString(out.String(), "time       (varies)")
	return status, snapshotSize.ReplaceAllString(masked, "from (n) bytes of snapshot"), errs.String()
}

// write puts a trace into a file and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nodes.csv")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const header = "sn,cpu_milli,memory_mib,gpu,model\n"

func TestGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"builtin.txt": nil,
		"ipv4.txt":    {"-pool6", "none", "-letters"},
		"ipv6.txt":    {"-pool4", "none", "-ascii"},
		"equal.txt":   {"-cores", "", "-pool4", "10.0.0.0/16", "-sizes4", "24", "-pool6", "fd00::/48", "-sizes6", "64"},
		"masked.txt":  {"-cores", "64", "-pool4", "192.0.2.0/24", "-sizes4", "31,30", "-pool6", "2001:db8::7:ffff/107", "-sizes6", "113,112", "-color"},
		"packed.txt":  {"-place", "most", "-podpool4", "10.0.0.7/22", "-block4", "28", "-podpool6", "none", "-idle", "0", "-ascii"},
		"nopods.txt":  {"-podpool4", "none", "-podpool6", "none", "-service4", "none", "-service6", "none"},
		"help.txt":    {"-h"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := start(args...)
			if name == "help.txt" {
				out, errs = errs, out
			}
			if status != exitOK || errs != "" {
				t.Fatalf("status %d, %s", status, errs)
			}
			if n := strings.Count(out, "(varies)"); n != 1 && name != "help.txt" {
				t.Errorf("%d lines of time", n)
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"-bogus"}, "flag provided but not defined: -bogus"},
		{[]string{"nodes.csv"}, `unexpected argument "nodes.csv": a trace is named with -nodes, -pods or -services`},
		{[]string{"-pool4", "none", "-pool6", "none"}, "-pool4 and -pool6 are both none: nothing to give to the nodes"},
		{[]string{"-pool4", "10.0.0.0"}, "-pool4 10.0.0.0: not a prefix, and not none"},
		{[]string{"-pool4", "fd00::/48"}, "-pool4 fd00::/48: not an IPv4 prefix"},
		{[]string{"-pool6", "10.0.0.0/8"}, "-pool6 10.0.0.0/8: not an IPv6 prefix"},
		{[]string{"-pool6", "::ffff:10.0.0.0/104"}, "-pool6 ::ffff:10.0.0.0/104: not an IPv6 prefix"},
		{[]string{"-sizes4", "26,25"}, "-sizes4 26,25: 2 lengths for 3 classes of nodes (-cores)"},
		{[]string{"-sizes4", "26,25,x"}, `-sizes4 26,25,x: "x" is no IPv4 prefix length`},
		{[]string{"-sizes4", "33,25,24"}, `-sizes4 33,25,24: "33" is no IPv4 prefix length`},
		{[]string{"-sizes6", "64,63,-1"}, `-sizes6 64,63,-1: "-1" is no IPv6 prefix length`},
		{[]string{"-pool4", "10.0.0.0/25"}, "-sizes4 26,25,24: a /24 does not fit into the pool 10.0.0.0/25"},
		{[]string{"-sizes6", "122,121,120"}, "-sizes6 122,121,120: the pool fd00:10:128::/56 holds more than 2^64 /122"},
		{[]string{"-pool6", "::/0", "-sizes6", "65,64,63"}, "-sizes6 65,64,63: the pool ::/0 holds more than 2^64 /65"},
		{[]string{"-cores", "64,32"}, "-cores 64,32: the numbers have to ascend from 1"},
		{[]string{"-cores", "32,32"}, "-cores 32,32: the numbers have to ascend from 1"},
		{[]string{"-cores", "0,32"}, "-cores 0,32: the numbers have to ascend from 1"},
		{[]string{"-cores", "32,many"}, `-cores 32,many: "many" is no number of cores`},
		{[]string{"-podpool4", "10.0.0.0"}, "-podpool4 10.0.0.0: not a prefix, and not none"},
		{[]string{"-podpool6", "10.0.0.0/24"}, "-podpool6 10.0.0.0/24: not an IPv6 prefix"},
		{[]string{"-podpool6", "fd00::/63"}, "-podpool6 fd00::/63: more than 2^64 addresses"},
		{[]string{"-block4", "23"}, "-block4 23: no block of 10.244.0.0/24 has that length"},
		{[]string{"-block6", "129"}, "-block6 129: no block of fd00:10:244::/116 has that length"},
		{[]string{"-place", "best"}, `-place: "best" is no placement: least or most`},
		{[]string{"-idle", "90ms"}, "-idle 90ms: whole seconds are needed"},
		{[]string{"-idle", "-1h"}, "-idle -1h0m0s: whole seconds are needed"},
	} {
		status, out, errs := start(c.args...)
		if status != exitUsage || out != "" || errs != "cluster: "+c.text+"\n" {
			t.Errorf("%v: status %d, %q, %q\nwant %q", c.args, status, out, errs, c.text)
		}
	}
}

func TestNoSuchFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nothing.csv")
	status, out, errs := start("-nodes", file)
	if status != exitUsage || out != "" || !strings.HasPrefix(errs, "open "+file+": ") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

func TestPoolTooSmall(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		text string
	}{
		{"IPv4", []string{"-pool4", "10.0.0.0/20"},
			`the pool 10.0.0.0/20 is too small: node "app-05", number 26 of 40 with 32 cores, needs a /25; 63 of 64 /26 are taken, ` +
				`the largest free prefix is a /26; all 40 nodes together need a /19 (-pool4)`},
		{"IPv6", []string{"-pool6", "fd00:1::/58"},
			`the pool fd00:1::/58 is too small: node "app-05", number 26 of 40 with 32 cores, needs a /63; 63 of 64 /64 are taken, ` +
				`the largest free prefix is a /64; all 40 nodes together need a /57 (-pool6)`},
		{"nothing left", []string{"-cores", "", "-pool4", "10.0.0.0/24", "-sizes4", "29", "-sizes6", "64"},
			`the pool 10.0.0.0/24 is too small: node "web-07", number 33 of 40 with 16 cores, needs a /29; 32 of 32 /29 are taken, ` +
				`nothing is free; all 40 nodes together need a /23 (-pool4)`},
		{"impossible", []string{"-pool4", "0.0.0.0/0", "-sizes4", "0,0,0"},
			`the pool 0.0.0.0/0 is too small: node "cache-01", number 2 of 40 with 24 cores, needs a /0; 1 of 1 /0 are taken, ` +
				`nothing is free; no pool of that family is large enough for all 40 nodes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, out, errs := start(c.args...)
			if status != exitFailed || out != "" {
				t.Errorf("status %d, %q", status, out)
			}
			if diff := cmp.Diff("cluster: "+c.text+"\n", errs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// What the text asks for is enough.
	if status, _, errs := start("-pool4", "10.0.0.0/19", "-pool6", "fd00:1::/57"); status != exitOK {
		t.Errorf("status %d, %s", status, errs)
	}
}

// The largest pool there is: 2^64 children, a count that no uint64 holds.
func TestLargestPool(t *testing.T) {
	status, out, errs := start("-pool4", "none", "-pool6", "::/0")
	if status != exitOK || !strings.Contains(out, "\nIPv6   ::/0   96 of 2^64 /64 taken   largest free prefix /1\n") {
		t.Errorf("status %d, %s\n%s", status, errs, out)
	}
}

// Any cluster is served by a pool of just its size: best fit strands nothing, whatever the order of
// the nodes.
func TestAnyCluster(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	sizes := []int{8, 32, 64} // cores
	weight := []int{1, 2, 4}  // children of the smallest size
	for range 60 {
		n, sum := 1+rng.IntN(60), 0
		trace := header
		for i := range n {
			class := rng.IntN(3)
			sum += weight[class]
			trace += fmt.Sprintf("n%d,%d,1024,0,\n", i, sizes[class]*1000)
		}
		bits := 0
		for 1<<bits < sum {
			bits++
		}
		bits = max(bits, 2) // the largest size has to fit into the pool at all
		args := []string{"-nodes", write(t, trace), "-pool4", fmt.Sprintf("10.0.0.0/%d", 26-bits), "-pool6", fmt.Sprintf("fd00::/%d", 64-bits)}
		if status, _, errs := start(args...); status != exitOK {
			t.Fatalf("status %d, %s\n%s", status, errs, trace)
		}
		if bits > 2 {
			args[3] = fmt.Sprintf("10.0.0.0/%d", 27-bits)
			want := fmt.Sprintf("together need a /%d (-pool4)\n", 26-bits)
			if n == 1 {
				want = fmt.Sprintf("need a /%d", 26-bits)
			}
			if status, _, errs := start(args...); status != exitFailed || !strings.HasSuffix(errs, want) {
				t.Fatalf("status %d, %s\nwant %s\n%s", status, errs, want, trace)
			}
		}
	}
}

func TestSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "map.svg")
	status, out, errs := start("-svg", file)
	if status != exitOK || !strings.HasSuffix(out, "\nmap written to "+file+"\n") {
		t.Fatalf("status %d, %s, %s", status, out, errs)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	titles := 0
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok && strings.HasPrefix(string(text), "IPv") {
			titles++
		}
	}
	if titles != 4 { // nodes' prefixes and pods' blocks, two families each
		t.Errorf("%d maps", titles)
	}

	status, _, errs = start("-svg", filepath.Join(t.TempDir(), "no", "such", "directory.svg"))
	if status != exitFailed || !strings.HasPrefix(errs, "cluster: open ") {
		t.Errorf("status %d, %q", status, errs)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestOutputFails(t *testing.T) {
	var errs bytes.Buffer
	if status := run(nil, closedPipe{}, &errs); status != exitFailed || !strings.Contains(errs.String(), io.ErrClosedPipe.Error()) {
		t.Errorf("status %d, %q", status, errs.String())
	}
}
