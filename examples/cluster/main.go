// Command cluster assigns the prefixes and addresses of a cluster, as its controllers and network plugins
// would. In the order of a trace, each node gets a prefix of each family and each pod an address of each
// family.
//
//	go run ./examples/cluster                                  # a small cluster that ships with it
//	go run ./examples/cluster -nodes nodes.csv -pods pods.csv  # a cluster of your own
//
// It shows both ways to number pods. File nodes.go gives every node a prefix on its first day, large nodes a
// larger one; a node keeps addresses that it does not need. File pods.go gives every pod an address from a
// block of its node. The node claims a block when it needs one, and returns an idle block. A node without a
// block borrows.
//
// The program keeps its own account of all holders. It fails if an address or prefix is assigned twice, or if
// the engine has lost one.
//
// The exit status is 0 for success, and 1 if a pool is too small or the accounts differ. It is 2 for wrong
// flags or a malformed trace, with file, line and column.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"go4.org/netipx"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// config is what the flags say.
type config struct {
	nodes, pods string // files; empty: the traces that ship with the program
	drawn       bool   // print maps of the pools
}

// run is the whole program. Apart from the times, its output depends on its arguments alone.
func run(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintf(stderr, "cluster: %v\n", err)
		return 2
	}
	nodes, pods, err := load(cfg)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if err := replay(context.Background(), cfg, nodes, pods, stdout); err != nil {
		fmt.Fprintf(stderr, "cluster: %v\n", err)
		return 1
	}
	return 0
}

// parse reads the flags. It prints the help itself and returns every other fault.
func parse(args []string, stderr io.Writer) (*config, error) {
	cfg := &config{}
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.nodes, "nodes", "", "trace of nodes: a CSV `file` with the columns sn and cpu_milli (default: 40 nodes that ship with the program)")
	flags.StringVar(&cfg.pods, "pods", "", "trace of pods: a CSV `file` with the columns name, cpu_milli, creation_time and deletion_time, in seconds; "+
		"a pod without deletion time stays (default: 163 pods that ship with the program)")
	flags.BoolVar(&cfg.drawn, "map", false, "draw the pools")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, "Usage: cluster [flags]\n\nGives the nodes of a cluster their prefixes and its pods their addresses, and counts both.\n\n")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: name a trace with -nodes or -pods", flags.Arg(0))
	}
	return cfg, err
}

// replay numbers the nodes, then the pods, and prints the counts of each.
func replay(ctx context.Context, cfg *config, nodes []node, pods []pod, stdout io.Writer) error {
	began := time.Now()
	fmt.Fprintf(stdout, "simulated: %s and %s, from %s\n", count(len(nodes), "node", "nodes"), count(len(pods), "pod", "pods"), cfg.origin())
	fmt.Fprintf(stdout, "claim: no prefix or address is given twice, and none is lost\n")
	families, err := newFamilies(cfg.nodes == "")
	if err != nil {
		return err
	}
	if _, err := serveNodes(families, nodes); err != nil {
		return err
	}
	reportNodes(stdout, families, cfg.drawn)
	network, err := newNetwork(ctx, cfg.pods == "")
	if err != nil {
		return err
	}
	if err := network.run(ctx, nodes, pods); err != nil {
		return err
	}
	if err := network.report(ctx, stdout, cfg.drawn); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "true: nodes, pods, sets and engine agree at the end (%v)\n", time.Since(began).Round(time.Millisecond))
	return err
}

// origin names the traces.
func (cfg *config) origin() string {
	if cfg.nodes == "" && cfg.pods == "" {
		return "the traces that ship with this program"
	}
	return strings.Trim(cfg.nodes+", "+cfg.pods, ", ")
}

// draw draws a pool, 64 cells in a row, in the order of their addresses. Rows that are free as a whole are counted, not drawn.
func draw(w io.Writer, pool netip.Prefix, cellBits int, legend string, cell func(netip.Prefix) rune) {
	fmt.Fprintf(w, "    one cell is a /%d: %s\n", cellBits, legend)
	first, skipped := pool.Addr(), 0
	for rows := 1 << max(cellBits-pool.Bits()-6, 0); rows > 0; rows-- {
		var row strings.Builder
		start := first
		for range min(64, 1<<(cellBits-pool.Bits())) {
			p := netip.PrefixFrom(first, cellBits)
			row.WriteRune(cell(p))
			first = netipx.PrefixLastIP(p).Next()
		}
		if strings.Trim(row.String(), ".") == "" {
			skipped++
			continue
		}
		fmt.Fprintf(w, "    %-20v %s\n", start, row.String())
	}
	if skipped > 0 {
		fmt.Fprintf(w, "    and %s without a cell in use\n", count(skipped, "row", "rows"))
	}
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
