package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// program measures all works together, so that works of different sizes can be compared.
var program = frame.Program{
	Name: "bench-peers", Dir: "bench/peers", Passes: 8,
	Layout: frame.Layout{
		Columns: []frame.Column{
			{Name: null, Title: "driver"}, {Name: ours, Title: "ours"}, {Name: flat, Title: "bitset"},
			{Name: cilium, Title: "Cilium"}, {Name: kubernetes, Title: "Kubernetes"},
		},
		Ratios: []frame.Ratio{{Title: "Kubernetes / ours", A: kubernetes, B: ours}, {Title: "ours / bitset", A: ours, B: flat}},
		Ours:   ours,
	},
	Targets: slices.Concat(cidrsetTargets, serviceTargets),
	Peers: []string{
		"k8s.io/kubernetes", "github.com/cilium/cilium", "github.com/bits-and-blooms/bitset",
	},
	How: "one goroutine: CPU time of its thread, several: wall time",
	Works: func() ([]*frame.Work, error) {
		return slices.Concat(cidrsetWorks().List, serviceWorks().List), nil
	},
}

func run(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	return program.Run(fs, args, stdout, stderr)
}
