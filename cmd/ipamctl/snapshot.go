package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// snapshot is what a file of MarshalBinary holds.
type snapshot struct {
	kind  string
	held  []heldView
	pools []netip.Prefix
	sizes []int // of a child, by pool; 0 is an address
	check func() error
}

// heldView is what an owner has.
type heldView struct {
	What  string `json:"what"`
	Owner string `json:"owner,omitempty"`
}

// snapshotFlags say what the snapshot of a set or a range was made with.
type snapshotFlags struct {
	pool  string
	bits  int
	ports string
}

func (a *app) snapshotCommand() *cobra.Command {
	var f snapshotFlags
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Show and check snapshots of cidrset, nodeipam and servicealloc",
		Long: "A snapshot is a file with what MarshalBinary of an allocator returned. That of nodeipam says itself what it is. For that of\n" +
			"a cidrset.Set name --pool and --bits, for a servicealloc.Range --pool, for a servicealloc.Registry --ports, FIRST-LAST or none.",
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.pool, "pool", "", "the `PREFIX` of the set or range")
	flags.IntVar(&f.bits, "bits", 0, "the prefix length of a child of the set")
	flags.StringVar(&f.ports, "ports", "", "the ports of the registry: `FIRST-LAST`, or none")
	var svg string
	draw := &cobra.Command{
		Use: "map FILE", Args: cobra.ExactArgs(1), Short: "Draw a snapshot",
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.readSnapshot(args[0], &f)
			if err != nil {
				return err
			}
			return a.drawSnapshot(s, svg)
		},
	}
	draw.Flags().StringVar(&svg, "svg", "", "write a picture to this `FILE`, - for standard output")
	c.AddCommand(&cobra.Command{
		Use: "show FILE", Args: cobra.ExactArgs(1), Short: "List what a snapshot holds",
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.readSnapshot(args[0], &f)
			if err != nil {
				return err
			}
			l := &listing{columns: []string{"WHAT", "OWNER"}, empty: "nothing is held"}
			for _, h := range s.held {
				l.add(h.What, h, h.What, h.Owner)
			}
			return a.print(l)
		},
	}, &cobra.Command{
		Use: "check FILE", Args: cobra.ExactArgs(1), Short: "Verify a snapshot",
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.readSnapshot(args[0], &f)
			if err == nil {
				err = s.check()
			}
			if err == nil {
				a.note("%s: a snapshot of %s, which holds %s", args[0], s.kind, plural(len(s.held), "entry"))
			}
			return err
		},
	}, draw)
	return c
}

// readSnapshot restores a snapshot.
func (a *app) readSnapshot(file string, f *snapshotFlags) (*snapshot, error) {
	data, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	var pool netip.Prefix
	if f.pool != "" {
		if pool, err = parsePrefix(f.pool); err != nil {
			return nil, err
		}
	}
	switch {
	case f.ports != "":
		return registrySnapshot(data, f.ports)
	case f.bits != 0:
		return setSnapshot(data, pool, f.bits)
	case pool.IsValid():
		return rangeSnapshot(data, pool)
	}
	s, err := nodeSnapshot(data)
	if errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, ipalloc.ErrVersion) {
		return nil, fmt.Errorf("%w; if it is no snapshot of nodeipam, name --pool, --pool and --bits, or --ports", err)
	}
	return s, err
}

func setSnapshot(data []byte, pool netip.Prefix, bits int) (*snapshot, error) {
	set, err := cidrset.Restore(pool, bits, data)
	if err != nil {
		return nil, err
	}
	s := &snapshot{kind: "cidrset.Set", pools: []netip.Prefix{pool}, sizes: []int{bits}, check: set.Check}
	for p := range set.All() {
		s.held = append(s.held, heldView{What: p.String()})
	}
	return s, nil
}

func nodeSnapshot(data []byte) (*snapshot, error) {
	nodes, err := nodeipam.Restore(data)
	if err != nil {
		return nil, err
	}
	s := &snapshot{kind: "nodeipam.Allocator", check: nodes.Check}
	for n := range nodes.All() {
		for _, p := range n.Prefixes {
			s.held = append(s.held, heldView{p.String(), n.Name})
		}
	}
	for _, p := range nodes.Stats().Pools {
		s.pools, s.sizes = append(s.pools, p.Pool), append(s.sizes, p.Bits)
	}
	return s, nil
}

func rangeSnapshot(data []byte, pool netip.Prefix) (*snapshot, error) {
	var r *servicealloc.Range
	var err error
	// A snapshot is restored with the options that the range was made with.
	for _, options := range [][]servicealloc.Option{nil, {servicealloc.LowestFirst()}, {servicealloc.NeverSpill()}, {servicealloc.LowestFirst(), servicealloc.NeverSpill()}} {
		if r, err = servicealloc.NewRange(pool, append(options, servicealloc.Restore(data))...); !errors.Is(err, ipalloc.ErrMismatch) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	s := &snapshot{kind: "servicealloc.Range", pools: []netip.Prefix{pool}, sizes: []int{0}, check: r.Check}
	for ip := range r.All() {
		s.held = append(s.held, heldView{What: ip.String()})
	}
	return s, nil
}

func registrySnapshot(data []byte, ports string) (*snapshot, error) {
	var pr servicealloc.PortRange
	if ports != "none" {
		if _, err := fmt.Sscanf(ports, "%d-%d", &pr.First, &pr.Last); err != nil {
			return nil, fail(exitUsage, "--ports %s: FIRST-LAST or none is needed", ports)
		}
	}
	r, err := servicealloc.NewRegistry(pr, servicealloc.Restore(data))
	if err != nil {
		return nil, err
	}
	s := &snapshot{kind: "servicealloc.Registry", check: r.Check}
	for g := range r.All() {
		for _, ip := range g.Addrs {
			s.held = append(s.held, heldView{ip.String(), g.Owner})
		}
		for _, p := range g.Ports {
			s.held = append(s.held, heldView{fmt.Sprintf("%s/%d", strings.ToLower(string(p.Protocol)), p.Number), g.Owner})
		}
	}
	for _, info := range r.Ranges() {
		for _, p := range info.Prefixes {
			s.pools, s.sizes = append(s.pools, p), append(s.sizes, 0)
		}
	}
	return s, nil
}

// drawSnapshot draws the pools of a snapshot.
func (a *app) drawSnapshot(s *snapshot, svg string) error {
	var pictures []addrmap.Picture
	for i, pool := range s.pools {
		space := &addrmap.Space{Pool: pool, Finest: s.sizes[i]}
		for _, h := range s.held {
			if p, err := parsePrefix(h.What); err == nil && p.Overlaps(pool) && p.Bits() >= pool.Bits() {
				space.AddPrefixes(addrmap.Used, h.Owner, p)
			}
		}
		space.Sort()
		pictures = append(pictures, addrmap.Picture{Space: space})
	}
	if svg != "" {
		var out bytes.Buffer
		if err := addrmap.SVG(&out, addrmap.SVGStyle{}, pictures...); err != nil {
			return err
		}
		if svg == "-" {
			_, err := a.stdout.Write(out.Bytes())
			return err
		}
		return os.WriteFile(svg, out.Bytes(), 0o644)
	}
	return a.writeText(&mapFlags{view: "hilbert"}, pictures)
}
