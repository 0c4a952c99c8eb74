// Command cluster gives every node of a cluster its pod prefixes and every service its addresses
// and node ports, the way the controllers of a real cluster would, and shows what came of it.
//
//	go run ./examples/cluster                          # a small trace that ships with it
//	go run ./examples/cluster -nodes nodes.csv         # a cluster of your own
//	go run ./examples/cluster -services services.csv   # services of your own
//	go run ./examples/cluster -h
//
// It reads a trace of nodes, gives each one prefix of each family, large nodes a larger one than
// small nodes; takes a tenth of the nodes away and adds them again; restarts from snapshots; and
// ends with a summary and a map of the pools. After every step, what the engine says is compared
// with what follows from the nodes' prefixes alone, computed without the engine.
//
// Services take a cluster IP of each family, some of them one that they name (cluster DNS the tenth
// of the range), and node ports; each gets all it asks for or nothing. They go through the same life.
//
// trace.go reads, nodes.go is the work, verify.go the comparison, summary.go the report;
// services_trace.go, services.go, services_verify.go and services_summary.go do it for services.
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

	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/servicealloc"
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
	nodes, err := trace.LoadNodes(cfg.nodesFile)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	var services []service
	if len(cfg.services) > 0 {
		if services, err = loadServices(cfg.servicesFile); err != nil {
			fmt.Fprintln(stderr, err)
			return exitUsage
		}
	}
	if err := replay(cfg, nodes, services, stdout); err != nil {
		fmt.Fprintf(stderr, "cluster: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// replay runs the phases over a trace and reports.
func replay(cfg *config, nodes []trace.Node, services []service, stdout io.Writer) error {
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
	if len(cfg.services) > 0 {
		if err := replayServices(cfg, services, stdout); err != nil {
			return err
		}
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

// replayServices runs the phases over the services and reports.
func replayServices(cfg *config, services []service, stdout io.Writer) error {
	phase, err := newServicePhase(cfg, services)
	if err != nil {
		return err
	}
	if err := phase.run(); err != nil {
		return err
	}
	return summarizeServices(stdout, cfg, phase)
}

// config is what the flags say.
type config struct {
	nodesFile    string
	families     []familyConfig
	cores        []uint64 // ascending: a node belongs to the class after the last of these that it reaches
	servicesFile string
	services     []serviceRange // none: no services
	nodePorts    servicealloc.PortRange
	svg          string
	ascii        bool
	letters      bool
	color        bool
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

	defaultService4 = "10.96.0.0/20"
	defaultService6 = "fd00:10:96::/108"
)

// parse reads the flags. It prints the help to stderr itself; every other fault is returned.
func parse(args []string, stderr io.Writer) (*config, error) {
	cfg := &config{}
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.nodesFile, "nodes", "", "trace of nodes: a CSV `file` with the columns "+strings.Join(trace.NodeColumns, ",")+
		" (default: a built-in trace of 40 nodes)")
	pool4 := flags.String("pool4", "", "IPv4 `prefix` that the nodes' prefixes come from, or none "+
		"(default "+defaultPool4+"; for the built-in trace "+builtinPool4+")")
	pool6 := flags.String("pool6", "", "IPv6 `prefix` likewise (default "+defaultPool6+"; for the built-in trace "+builtinPool6+")")
	cores := flags.String("cores", "32,64", "where the classes of nodes begin, in cores, ascending: `a,b` makes three classes, below a, from a, from b")
	sizes4 := flags.String("sizes4", "26,25,24", "IPv4 prefix `lengths`, one for each class of nodes")
	sizes6 := flags.String("sizes6", "64,63,62", "IPv6 prefix `lengths` likewise")
	flags.StringVar(&cfg.servicesFile, "services", "", "trace of services: a CSV `file` with the columns "+strings.Join(serviceColumns, ",")+
		" (default: a built-in trace of 24 services); an address is any, none, a place in the range such as #10, or itself; ports are protocols, "+
		"perhaps with a number, as in \"TCP UDP:30053\"")
	service4 := flags.String("service4", defaultService4, "IPv4 `prefix` that the services' addresses come from, or none")
	service6 := flags.String("service6", defaultService6, "IPv6 `prefix` likewise; without both there are no services")
	nodePorts := flags.String("nodeports", "30000-32767", "the `range` of the node ports")
	flags.StringVar(&cfg.svg, "svg", "", "write the map of the pools to this `file` too, as SVG")
	flags.BoolVar(&cfg.ascii, "ascii", false, "draw the map in plain ASCII")
	flags.BoolVar(&cfg.letters, "letters", false, "draw the map with a letter for each class of nodes in place of shades")
	flags.BoolVar(&cfg.color, "color", false, "colour the map by class of node (ANSI escape sequences)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: cluster [flags]\n\nReplays a trace of cluster nodes and services: gives each node its pod prefixes, each service its\naddresses and node ports, and shows what came of it.")
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
	return cfg, cfg.parseServices(*service4, *service6, *nodePorts)
}

// parseServices reads the flags about services. Prefixes are masked here as those of pools are.
func (c *config) parseServices(prefix4, prefix6, ports string) error {
	for _, f := range []struct {
		family servicealloc.Family
		flag   string
		prefix string
	}{{servicealloc.IPv4, "-service4", prefix4}, {servicealloc.IPv6, "-service6", prefix6}} {
		if f.prefix == "none" {
			continue
		}
		p, err := netip.ParsePrefix(f.prefix)
		if err != nil {
			return fmt.Errorf("%s %s: not a prefix, and not none", f.flag, f.prefix)
		}
		if p = p.Masked(); p.Addr().Is4() != (f.family == servicealloc.IPv4) || p.Addr().Is4In6() {
			return fmt.Errorf("%s %s: not an %v prefix", f.flag, f.prefix, f.family)
		}
		c.services = append(c.services, serviceRange{f.family.String(), f.family, p})
	}
	var err error
	if c.nodePorts, err = servicealloc.ParsePortRange(ports); err != nil {
		return fmt.Errorf("-nodeports %s: two ports are needed, as in 30000-32767", ports)
	}
	return nil
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
