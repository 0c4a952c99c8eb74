package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

func main() {
	if counted() {
		return
	}
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "goipam:", err)
		os.Exit(1)
	}
}

// program returns what is measured: the works on the servers too if there are any when it runs.
func program(b **backends) *frame.Program {
	return &frame.Program{
		Name: "bench-peers-goipam", Dir: "bench/peers/goipam", Passes: 9,
		Layout: frame.Layout{
			Columns: []frame.Column{{Name: ours, Title: "ours"}, {Name: theirs, Title: "go-ipam"}},
			Ratios:  []frame.Ratio{{Title: "go-ipam / ours", A: theirs, B: ours}},
			Ours:    ours,
		},
		Process: true, Apart: true,
		Peers: []string{"github.com/metal-stack/go-ipam", "go.etcd.io/etcd/client/v3"},
		How:   "in memory: CPU time of the process on one core; on servers: wall time, and every write is synced",
		Works: func() ([]*frame.Work, error) { return (*b).all(), nil },
		Facts: func(_ frame.Options, wanted func(string) bool, log io.Writer) ([]frame.Fact, error) {
			if !wanted("instructions") {
				return nil, nil
			}
			return instructions(log)
		},
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("goipam", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var b *backends
	defer func() {
		if b != nil {
			b.close()
		}
	}()
	fs.BoolFunc("servers", "measure on etcd and PostgreSQL as well; etcd is built the first time", func(string) (err error) {
		b, err = startBackends(bg)
		return err
	})
	return program(&b).Run(fs, args, stdout, stderr)
}
