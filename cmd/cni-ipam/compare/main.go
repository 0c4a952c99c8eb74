// Command compare measures this plugin beside the real host-local, from the start of a process to its exit, which is what a
// container runtime waits for. It builds both in the same way, runs them in turns, and prints the medians of one run with
// their ratios.
//
//	go run ./compare            in cmd/cni-ipam; takes a minute or two
//
// The data directories are below the system's temporary directory; choose another one with TMPDIR.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

func main() {
	rounds := flag.Int("rounds", 300, "how often a call is measured where it is fast")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// side is a plugin with a data directory.
type side struct {
	name, bin, dir string
}

// cost is what one call took.
type cost struct{ wall, cpu time.Duration }

// conf returns a configuration for a network.
func (s *side) conf(network, subnet string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"bridge","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
		network, s.dir, subnet)
}

// call runs the plugin once.
func (s *side) call(verb, container, conf string) (cost, error) {
	cmd := exec.Command(s.bin)
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=/no/such/namespace", "CNI_PATH=/no/such/path"}
	cmd.Stdin = strings.NewReader(conf)
	var out bytes.Buffer
	cmd.Stdout = &out
	began := time.Now()
	err := cmd.Run()
	c := cost{wall: time.Since(began)}
	if err != nil {
		return c, fmt.Errorf("%s: %s %s: %w: %s", s.name, verb, container, err, out.String())
	}
	c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return c, nil
}

func run(rounds int) error {
	dir, err := os.MkdirTemp("", "cni-ipam-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	theirBin, err := binaries.Other(binaries.HostLocal)
	if err != nil {
		return err
	}
	ourBin, err := binaries.Ours(dir, "cni-ipam")
	if err != nil {
		return err
	}
	theirs, ours := &side{"host-local", theirBin, filepath.Join(dir, "theirs")}, &side{"ours", ourBin, filepath.Join(dir, "ours")}
	fmt.Printf("%s, %d CPUs, files in %s\nmedian of each call, from the start of the process to its exit; host-local 1.9.1 built alike\n\n", runtime.Version(), runtime.NumCPU(), os.TempDir())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\thost-local\tours\thost-local / ours\tCPU\tCPU ours\tratio\t")
	for _, m := range []func() error{
		func() error { return verbs(w, theirs, ours, "empty /24", "10.1.2.0/24", 0, rounds) },
		func() error { return first(w, theirs, ours, rounds) },
		func() error { return verbs(w, theirs, ours, "150 held", "10.1.2.0/24", 150, rounds) },
		func() error { return verbs(w, theirs, ours, "/16, 99 % full", "10.128.0.0/16", 64880, 7) },
		func() error { return parallel(w, theirs, ours, 200) },
	} {
		if err := m(); err != nil {
			return err
		}
		w.Flush()
	}
	return nil
}

// verbs measures ADD, CHECK and DEL of one attachment at a time beside some that are held, both plugins in turns.
func verbs(w *tabwriter.Writer, theirs, ours *side, title, subnet string, held, rounds int) error {
	network := fmt.Sprint("held", held)
	if err := errors.Join(theirs.fill(network, subnet, held), ours.fill(network, subnet, held)); err != nil {
		return err
	}
	if err := ours.settle(network, subnet); err != nil {
		return err
	}
	list := []string{"ADD", "CHECK", "DEL"}
	costs := map[string][]cost{}
	for i := range rounds {
		for k := range 2 {
			s := []*side{theirs, ours}[(i+k)%2]
			for _, verb := range list {
				c, err := s.call(verb, fmt.Sprint("new", i), s.conf(network, subnet))
				if err != nil {
					return err
				}
				costs[s.name+verb] = append(costs[s.name+verb], c)
			}
		}
	}
	for _, verb := range list {
		row(w, title+": "+verb, middle(costs[theirs.name+verb]), middle(costs[ours.name+verb]))
	}
	return nil
}

// settle makes calls until the network's directory has been quiet for a while, as that of a
// node is: the first seconds of a network cost our plugin a look at the directory.
func (s *side) settle(network, subnet string) error {
	for range 3 {
		if _, err := s.call("DEL", "nobody", s.conf(network, subnet)); err != nil {
			return err
		}
		time.Sleep(2200 * time.Millisecond)
	}
	return nil
}

// first measures the first ADD of networks.
func first(w *tabwriter.Writer, theirs, ours *side, rounds int) error {
	costs := map[*side][]cost{}
	for i := range rounds {
		for k := range 2 {
			s := []*side{theirs, ours}[(i+k)%2]
			c, err := s.call("ADD", "first", s.conf(fmt.Sprint("first", i), "10.1.2.0/24"))
			if err != nil {
				return err
			}
			costs[s] = append(costs[s], c)
		}
	}
	row(w, "first ADD of a network", middle(costs[theirs]), middle(costs[ours]))
	return nil
}

// row prints one line of the table.
func row(w *tabwriter.Writer, title string, theirs, ours cost) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%.2fx\t%s\t%s\t%.2fx\t\n", title, short(theirs.wall), short(ours.wall), float64(theirs.wall)/float64(ours.wall),
		short(theirs.cpu), short(ours.cpu), float64(theirs.cpu)/float64(ours.cpu))
}

func short(d time.Duration) string {
	if d < 100*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// middle returns the medians.
func middle(costs []cost) (m cost) {
	pick := func(of func(cost) time.Duration) time.Duration {
		ds := make([]time.Duration, len(costs))
		for i, c := range costs {
			ds[i] = of(c)
		}
		slices.Sort(ds)
		return ds[len(ds)/2]
	}
	return cost{pick(func(c cost) time.Duration { return c.wall }), pick(func(c cost) time.Duration { return c.cpu })}
}

// fill writes files for some addresses of a subnet, in host-local's form, and leaves out every hundredth. Our plugin takes
// them over with its first call, which is not measured.
func (s *side) fill(network, subnet string, held int) error {
	dir := filepath.Join(s.dir, network)
	err := os.MkdirAll(dir, 0o755)
	a := netip.MustParsePrefix(subnet).Addr().Next()
	for i := 0; i < held && err == nil; i++ {
		if a = a.Next(); i%100 == 50 {
			a = a.Next()
		}
		err = os.WriteFile(filepath.Join(dir, a.String()), []byte(fmt.Sprintf("container-%d\r\neth0", i)), 0o600)
	}
	return err
}

// parallel measures how long many ADDs at once take in all.
func parallel(w *tabwriter.Writer, theirs, ours *side, calls int) error {
	const passes = 5
	costs := map[string][]cost{}
	for pass := range passes {
		for _, s := range []*side{theirs, ours} {
			conf := s.conf(fmt.Sprint("parallel", pass), "10.1.0.0/22")
			var wg sync.WaitGroup
			var mu sync.Mutex
			var failed error
			total := cost{}
			began := time.Now()
			for i := range calls {
				wg.Add(1)
				go func() {
					defer wg.Done()
					c, err := s.call("ADD", fmt.Sprint("c", i), conf)
					mu.Lock()
					defer mu.Unlock()
					total.cpu += c.cpu
					if err != nil {
						failed = err
					}
				}()
			}
			wg.Wait()
			total.wall = time.Since(began)
			if failed != nil {
				return failed
			}
			costs[s.name] = append(costs[s.name], total)
		}
	}
	row(w, fmt.Sprintf("%d ADDs at once, in all", calls), middle(costs[theirs.name]), middle(costs[ours.name]))
	return nil
}
