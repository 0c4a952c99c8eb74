// Command cluster gives every node of a cluster its pod prefixes, the way a controller of a real
// cluster would, and shows what came of it.
//
//	go run ./examples/cluster                          # a small trace that ships with it
//	go run ./examples/cluster -nodes nodes.csv         # a cluster of your own
//	go run ./examples/cluster -h
//
// It reads a trace of nodes, gives each one prefix of each family, large nodes a larger one than
// small nodes; takes a tenth of the nodes away and adds them again; restarts from snapshots; and
// ends with a summary and a map of the pools. After every step, what the engine says is compared
// with what follows from the nodes' prefixes alone, computed without the engine.
//
// trace.go reads, nodes.go is the work, verify.go the comparison, summary.go the report.
//
// Exit status: 0 when all went well; 1 when a promise was broken or a pool is too small, with what
// and why; 2 for wrong flags or a malformed trace, with file, line and column.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const (
	exitOK     = 0
	exitFailed = 1 // a broken promise, a pool too small, a picture that could not be written
	exitUsage  = 2 // wrong flags, a malformed trace
)

// run is the whole program. Apart from the line that starts with "time", its output depends on its
// arguments alone.
func run(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "cluster: %v\n", err)
		return exitUsage
	}
	nodes, err := loadNodes(cfg.nodesFile)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if err := replay(cfg, nodes, stdout); err != nil {
		fmt.Fprintf(stderr, "cluster: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// replay runs the phases over a trace and reports.
func replay(cfg *config, nodes []node, stdout io.Writer) error {
	phase, err := newNodePhase(cfg, nodes, time.Now)
	if err != nil {
		return err
	}
	if err := phase.run(); err != nil {
		return err
	}
	if err := summarize(stdout, cfg, phase); err != nil {
		return err
	}
	if cfg.svg == "" {
		return nil
	}
	if err := writeSVG(cfg.svg, phase); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nmap written to %s\n", cfg.svg)
	return nil
}

// config is what the flags say.
type config struct {
	nodesFile string
	families  []familyConfig
	cores     []uint64 // ascending: a node belongs to the class after the last of these that it reaches
	svg       string
	ascii     bool
	letters   bool
	color     bool
}

// familyConfig is a pool, and the length of a node's prefix for each class of nodes.
type familyConfig struct {
	name  string
	pool  netip.Prefix
	sizes []int
}

// The pools fit the clusters they are for: the built-in one fills three quarters of its IPv4 pool.
const (
	defaultPool4 = "10.128.0.0/13"
	defaultPool6 = "fd00:10:128::/48"
	builtinPool4 = "10.128.0.0/19"
	builtinPool6 = "fd00:10:128::/56"
)

// parse reads the flags. It prints the help to stderr itself; every other fault is returned.
func parse(args []string, stderr io.Writer) (*config, error) {
	cfg := &config{}
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.nodesFile, "nodes", "", "trace of nodes: a CSV `file` with the columns "+strings.Join(nodeColumns, ",")+
		" (default: a built-in trace of 40 nodes)")
	pool4 := flags.String("pool4", "", "IPv4 `prefix` that the nodes' prefixes come from, or none "+
		"(default "+defaultPool4+"; for the built-in trace "+builtinPool4+")")
	pool6 := flags.String("pool6", "", "IPv6 `prefix` likewise (default "+defaultPool6+"; for the built-in trace "+builtinPool6+")")
	cores := flags.String("cores", "32,64", "where the classes of nodes begin, in cores, ascending: `a,b` makes three classes, below a, from a, from b")
	sizes4 := flags.String("sizes4", "26,25,24", "IPv4 prefix `lengths`, one for each class of nodes")
	sizes6 := flags.String("sizes6", "64,63,62", "IPv6 prefix `lengths` likewise")
	flags.StringVar(&cfg.svg, "svg", "", "write the map of the pools to this `file` too, as SVG")
	flags.BoolVar(&cfg.ascii, "ascii", false, "draw the map in plain ASCII")
	flags.BoolVar(&cfg.letters, "letters", false, "draw the map with a letter for each class of nodes in place of shades")
	flags.BoolVar(&cfg.color, "color", false, "colour the map by class of node (ANSI escape sequences)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: cluster [flags]\n\nReplays a trace of cluster nodes: gives each its pod prefixes, and shows what came of it.")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: a trace is named with -nodes", flags.Arg(0))
	}
	if *pool4 == "" {
		*pool4 = pick(cfg.nodesFile == "", builtinPool4, defaultPool4)
	}
	if *pool6 == "" {
		*pool6 = pick(cfg.nodesFile == "", builtinPool6, defaultPool6)
	}
	if err := cfg.parseCores(*cores); err != nil {
		return nil, err
	}
	if err := cfg.addFamily("4", *pool4, *sizes4); err != nil {
		return nil, err
	}
	if err := cfg.addFamily("6", *pool6, *sizes6); err != nil {
		return nil, err
	}
	if len(cfg.families) == 0 {
		return nil, errors.New("-pool4 and -pool6 are both none: nothing to give to the nodes")
	}
	return cfg, nil
}

// pick returns a if the condition holds, else b.
func pick(condition bool, a, b string) string {
	if condition {
		return a
	}
	return b
}

func (c *config) parseCores(list string) error {
	for _, s := range split(list) {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return fmt.Errorf("-cores %s: %q is no number of cores", list, s)
		}
		if n == 0 || len(c.cores) > 0 && n <= c.cores[len(c.cores)-1] {
			return fmt.Errorf("-cores %s: the numbers have to ascend from 1", list)
		}
		c.cores = append(c.cores, n)
	}
	return nil
}

// addFamily reads the flags of one family. People write pools with host bits (10.128.3.1/13): they
// are masked here, as the engine refuses them.
func (c *config) addFamily(version, pool, sizes string) error {
	if pool == "none" {
		return nil
	}
	p, err := netip.ParsePrefix(pool)
	if err != nil {
		return fmt.Errorf("-pool%s %s: not a prefix, and not none", version, pool)
	}
	p = p.Masked()
	if p.Addr().Is4() != (version == "4") || p.Addr().Is4In6() {
		return fmt.Errorf("-pool%s %s: not an IPv%s prefix", version, pool, version)
	}
	f := familyConfig{name: "IPv" + version, pool: p}
	for _, s := range split(sizes) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > p.Addr().BitLen() {
			return fmt.Errorf("-sizes%s %s: %q is no IPv%s prefix length", version, sizes, s, version)
		}
		if n < p.Bits() {
			return fmt.Errorf("-sizes%s %s: a /%d does not fit into the pool %v", version, sizes, n, p)
		}
		f.sizes = append(f.sizes, n)
	}
	if len(f.sizes) != len(c.cores)+1 {
		return fmt.Errorf("-sizes%s %s: %d lengths for %d classes of nodes (-cores)", version, sizes, len(f.sizes), len(c.cores)+1)
	}
	if longest := slices.Max(f.sizes); longest-p.Bits() > 64 {
		return fmt.Errorf("-sizes%s %s: the pool %v holds more than 2^64 /%d", version, sizes, p, longest)
	}
	c.families = append(c.families, f)
	return nil
}

// split returns the parts of a comma-separated list, none for an empty one.
func split(list string) []string {
	if strings.TrimSpace(list) == "" {
		return nil
	}
	parts := strings.Split(list, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
