// Command cluster gives every node of a cluster its pod prefixes, every service its addresses and
// node ports, and every pod its addresses, the way the controllers and network plugins of a real
// cluster would, and shows what came of it.
//
//	go run ./examples/cluster                                  # small traces that ship with it
//	go run ./examples/cluster -nodes nodes.csv -pods pods.csv  # a cluster of your own
//	go run ./examples/cluster -services services.csv           # services of your own
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
// Pods come and go in time order, each on the least loaded node, and take an address of each family
// from blocks that their node has claimed out of a pool of the whole cluster. That is the other way
// to number pods: with a prefix for each node, a node can have no more pods than it was given
// addresses on its first day, and keeps what it does not need; with blocks, it claims and returns
// them as pods come and go, and borrows when there are none left. A cluster uses one of the two for
// a network of pods; here each has a range of its own, so that both can be seen on the same nodes.
//
// nodes.go, services.go and pods.go are the work, *_verify.go and verify.go the comparison,
// *_summary.go and summary.go the report. What examples/durable shares with it is below
// examples/internal: the traces in trace, the pods' network in podnet.
//
// Exit status: 0 when all went well; 1 when a promise was broken or a pool is too small, with what
// and why; 2 for wrong flags or a malformed trace, with file, line and column.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/internal/addrmap"
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
	t, err := load(cfg)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if err := replay(context.Background(), cfg, t, stdout); err != nil {
		fmt.Fprintf(stderr, "cluster: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// traces is what is replayed.
type traces struct {
	nodes    []trace.Node
	services []service
	pods     []trace.Pod
}

// load reads the traces that are asked for.
func load(cfg *config) (t traces, err error) {
	t.nodes, err = trace.LoadNodes(cfg.nodesFile)
	if err == nil && len(cfg.services) > 0 {
		t.services, err = loadServices(cfg.servicesFile)
	}
	if err == nil && len(cfg.pods.Ranges) > 0 {
		t.pods, err = trace.LoadPods(cfg.podFlags.File, t.nodes)
	}
	return t, err
}

// replay runs the phases over the traces and reports.
func replay(ctx context.Context, cfg *config, t traces, stdout io.Writer) error {
	pictures, err := replayNodes(cfg, t.nodes, stdout)
	if err != nil {
		return err
	}
	if len(cfg.services) > 0 {
		if err := replayServices(cfg, t.services, stdout); err != nil {
			return err
		}
	}
	if len(cfg.pods.Ranges) > 0 {
		blocks, err := replayPods(ctx, cfg, t, stdout)
		if err != nil {
			return err
		}
		pictures = append(pictures, blocks...)
	}
	if cfg.svg == "" {
		return nil
	}
	if err := writeSVG(cfg.svg, pictures); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nmap written to %s\n", cfg.svg)
	return nil
}

// replayNodes runs the phases over the nodes and reports.
func replayNodes(cfg *config, nodes []trace.Node, stdout io.Writer) ([]addrmap.Picture, error) {
	phase, err := newNodePhase(cfg, nodes, time.Now)
	if err != nil {
		return nil, err
	}
	if err := phase.run(); err != nil {
		return nil, err
	}
	return phase.pictures(), summarize(stdout, cfg, phase)
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

// replayPods runs the phases over the pods and reports.
func replayPods(ctx context.Context, cfg *config, t traces, stdout io.Writer) ([]addrmap.Picture, error) {
	phase, err := newPodPhase(ctx, cfg, t.nodes, t.pods)
	if err != nil {
		return nil, err
	}
	if err := phase.run(ctx); err != nil {
		return nil, err
	}
	if err := summarizePods(ctx, stdout, cfg, phase); err != nil {
		return nil, err
	}
	return phase.net.Pictures(ctx)
}
