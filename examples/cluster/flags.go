package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc/examples/internal/podnet"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// config is what the flags say.
type config struct {
	nodesFile    string
	families     []familyConfig
	cores        []uint64 // ascending: a node belongs to the class after the last of these that it reaches
	servicesFile string
	services     []serviceRange // none: no services
	nodePorts    servicealloc.PortRange
	podFlags     podnet.Flags
	pods         podnet.Config // without ranges: no pods
	place        trace.Placement
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
		" and perhaps gpu (default: a built-in trace of 40 nodes)")
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
	cfg.podFlags.Register(flags)
	flags.StringVar(&cfg.svg, "svg", "", "write the maps of all pools to this `file` too, as SVG")
	flags.BoolVar(&cfg.ascii, "ascii", false, "draw the maps in plain ASCII")
	flags.BoolVar(&cfg.letters, "letters", false, "draw the maps of nodes with a letter for each class in place of shades")
	flags.BoolVar(&cfg.color, "color", false, "colour the maps by class of node, or by node (ANSI escape sequences)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: cluster [flags]\n\nReplays a trace of a cluster: gives each node its pod prefixes, each service its addresses and node\nports, each pod its addresses, and shows what came of it.")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: a trace is named with -nodes, -pods or -services", flags.Arg(0))
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
	if err := cfg.addFamily(4, *pool4, *sizes4); err != nil {
		return nil, err
	}
	if err := cfg.addFamily(6, *pool6, *sizes6); err != nil {
		return nil, err
	}
	if len(cfg.families) == 0 {
		return nil, errors.New("-pool4 and -pool6 are both none: nothing to give to the nodes")
	}
	if err := cfg.parseServices(*service4, *service6, *nodePorts); err != nil {
		return nil, err
	}
	var err error
	cfg.pods, cfg.place, err = cfg.podFlags.Config()
	return cfg, err
}

// parseServices reads the flags about services.
func (c *config) parseServices(prefix4, prefix6, ports string) error {
	for _, f := range []struct {
		family  serviceFamily
		version int
		prefix  string
	}{{ipv4, 4, prefix4}, {ipv6, 6, prefix6}} {
		p, ok, err := wording.Prefix(fmt.Sprintf("-service%d", f.version), f.prefix, f.version)
		if err != nil {
			return err
		}
		if ok {
			c.services = append(c.services, serviceRange{string(f.family), f.family, p})
		}
	}
	lo, hi, _ := strings.Cut(ports, "-")
	first, err1 := strconv.ParseUint(lo, 10, 16)
	last, err2 := strconv.ParseUint(hi, 10, 16)
	if err1 != nil || err2 != nil || first == 0 || last < first {
		return fmt.Errorf("-nodeports %s: two ports are needed, as in 30000-32767", ports)
	}
	c.nodePorts = servicealloc.PortRange{First: uint16(first), Last: uint16(last)}
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

// addFamily reads the flags of one family.
func (c *config) addFamily(version int, pool, sizes string) error {
	p, ok, err := wording.Prefix(fmt.Sprintf("-pool%d", version), pool, version)
	if err != nil || !ok {
		return err
	}
	f := familyConfig{name: fmt.Sprintf("IPv%d", version), pool: p}
	for _, s := range split(sizes) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > p.Addr().BitLen() {
			return fmt.Errorf("-sizes%d %s: %q is no IPv%d prefix length", version, sizes, s, version)
		}
		if n < p.Bits() {
			return fmt.Errorf("-sizes%d %s: a /%d does not fit into the pool %v", version, sizes, n, p)
		}
		f.sizes = append(f.sizes, n)
	}
	if len(f.sizes) != len(c.cores)+1 {
		return fmt.Errorf("-sizes%d %s: %d lengths for %d classes of nodes (-cores)", version, sizes, len(f.sizes), len(c.cores)+1)
	}
	if longest := slices.Max(f.sizes); longest-p.Bits() > 64 {
		return fmt.Errorf("-sizes%d %s: the pool %v holds more than 2^64 /%d", version, sizes, p, longest)
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
