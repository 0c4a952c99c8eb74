// Command cloud gives nodes pod prefixes where a cloud routes them. A range has two records: the
// node's, in the API server, and the machine's, in the cloud. In mode "cluster" this program
// chooses the range: it assigns the range to the machine in the cloud before it writes the node's
// record. In mode "cloud" it writes into the node's record the range that the cloud has given the
// machine. In both modes the machine's range outlasts the process, and the next process finds it
// there.
//
// The modes are IPAMFromCluster and IPAMFromCloud of the original controller. Its CloudAllocator is
// mode "cloud" with pools that contain all ranges of the cloud.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// Cloud is the client of a cloud provider.
type Cloud interface {
	// Ranges returns the ranges of a machine, or ipalloc.ErrNotFound if it does not exist.
	Ranges(ctx context.Context, machine string) ([]netip.Prefix, error)
	// Assign gives a machine ranges, all or none. It succeeds for ranges that the machine already has.
	// ipalloc.ErrConflict means that another machine has any of the ranges. After any other error the
	// outcome is unknown.
	Assign(ctx context.Context, machine string, ps []netip.Prefix) error
}

// later is an error that names a delay.
type later struct {
	error
	after time.Duration
}

func (l later) RetryAfter() time.Duration { return l.after }
func (l later) Unwrap() error             { return l.error }

// fromCluster is the Source and the Writer of a controller that decides and tells the cloud.
type fromCluster struct {
	controller.Source
	controller.Writer
	cloud Cloud
	pause time.Duration
	known map[string][]netip.Prefix // at the start: ranges of machines whose nodes have no record
}

// Start finds the machines that an earlier controller gave a range but no record.
func (f *fromCluster) Start(ctx context.Context, changed func(string)) error {
	if err := f.Source.Start(ctx, changed); err != nil {
		return err
	}
	f.known = map[string][]netip.Prefix{}
	for _, n := range f.Source.List() {
		if len(n.Prefixes) > 0 {
			continue
		}
		ps, err := f.cloud.Ranges(ctx, n.Name)
		if err != nil && !errors.Is(err, ipalloc.ErrNotFound) {
			return fmt.Errorf("ranges of %s: %w", n.Name, err)
		}
		if len(ps) > 0 {
			f.known[n.Name] = ps
			changed(n.Name) // List shows the range, so the load takes the node for served
		}
	}
	return nil
}

// List shows the range of a machine as the record of its node, so the load claims it. Get shows
// the record alone, so the controller writes it.
func (f *fromCluster) List() []nodeipam.Node {
	nodes := f.Source.List()
	for i, n := range nodes {
		if len(n.Prefixes) == 0 && !n.Terminating {
			nodes[i].Prefixes = f.known[n.Name]
		}
	}
	return nodes
}

// Write assigns the ranges to the machine and then writes the record. If the cloud refuses, the
// write is refused: the controller releases the ranges and tries the next ones. Once the machine
// may have them, Write reports no refusal, so the controller keeps them for the node.
func (f *fromCluster) Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error {
	switch err := f.cloud.Assign(ctx, n.Name, as.Prefixes); {
	case errors.Is(err, ipalloc.ErrNotFound): // of the machine; for the controller it would mean the node
		return later{fmt.Errorf("no machine yet: %v", err), f.pause}
	case err != nil:
		return fmt.Errorf("assign to machine %s: %w", n.Name, err)
	}
	err := f.Writer.Write(ctx, n, as)
	if errors.Is(err, ipalloc.ErrConflict) {
		return fmt.Errorf("the machine has %v: %v", as.Prefixes, err) // %v hides the refusal
	}
	return err
}

// fromCloud returns a Choose that claims what the cloud has given the machine.
func fromCloud(a *nodeipam.Allocator, cloud Cloud, pause time.Duration) func(context.Context, nodeipam.Node) (nodeipam.Assignment, error) {
	return func(ctx context.Context, n nodeipam.Node) (as nodeipam.Assignment, err error) {
		n.Prefixes, err = cloud.Ranges(ctx, n.Name)
		if err != nil || len(n.Prefixes) == 0 {
			return as, later{fmt.Errorf("machine %s has no range yet (%v)", n.Name, err), pause}
		}
		if err := a.Occupy(n); err != nil {
			return as, err // another node holds it, or no pool has it
		}
		as, _ = a.Lookup(n.Name)
		return as, nil
	}
}

func newAllocator() (*nodeipam.Allocator, error) {
	return nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/20")}}}})
}

// run serves the nodes until ctx ends.
func run(ctx context.Context, mode string, api interface {
	controller.Source
	controller.Writer
}, cloud Cloud, pause time.Duration) error {
	a, err := newAllocator()
	if err != nil {
		return err
	}
	cfg := controller.Config{Allocator: a, Source: api, Writer: api, Workers: 4, Base: pause, Max: 8 * pause, RequestLife: pause,
		Report: func(node string, err error) { log.Print(node, ": ", err) }}
	switch mode {
	case "cluster":
		f := &fromCluster{Source: api, Writer: api, cloud: cloud, pause: pause}
		cfg.Source, cfg.Writer = f, f
	case "cloud":
		cfg.Choose = fromCloud(a, cloud, pause)
	}
	c, err := controller.New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func main() {
	w := newWorld("")
	for i := range 3 {
		w.add(fmt.Sprint("node", i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := run(ctx, "cluster", w, (*fakeCloud)(w), 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		log.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Nodes)) {
		fmt.Printf("%s: the node's record has %v, and the cloud routes %v to its machine\n", name, w.Nodes[name].Record, w.Machines[name])
	}
}
