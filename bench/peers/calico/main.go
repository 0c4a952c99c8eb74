package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

func main() {
	quiet()
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "calico:", err)
		os.Exit(1)
	}
}

// program returns what is measured, on etcd too if there is one when it runs. Each work is measured alone:
// what a garbage collection costs depends on all that is alive.
func program(server **etcd) *frame.Program {
	return &frame.Program{
		Name: "bench-peers-calico", Dir: "bench/peers/calico", Passes: 9,
		Layout: frame.Layout{
			Columns: []frame.Column{{Name: ours, Title: "ours"}, {Name: theirs, Title: "Calico"}},
			Ratios:  []frame.Ratio{{Title: "Calico / ours", A: theirs, B: ours}},
			Ours:    ours,
		},
		Targets: targets,
		Process: true, Apart: true,
		Peers: []string{"github.com/projectcalico/calico", "go.etcd.io/etcd/client/v3"},
		How:   "one caller on memory: CPU time of the process on one core, all else: wall time; an etcd is one member on this machine that syncs every write",
		Works: func() ([]*frame.Work, error) {
			works := engineWorks().List
			if *server != nil {
				works = append(works, (*server).works().List...)
			}
			return works, nil
		},
		Facts: func(o frame.Options, wanted func(string) bool, log io.Writer) (facts []frame.Fact, err error) {
			if *server != nil && wanted("etcd/requests") {
				facts = append(facts, (*server).counts()...)
			}
			if wanted("crowd") {
				facts = append(facts, crowd(o, crowdEach, log)...)
			}
			if wanted("memory") {
				facts = append(facts, memory(o, log)...)
			}
			return facts, nil
		},
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("calico", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var server *etcd
	defer func() {
		if server != nil {
			server.close()
		}
	}()
	fs.BoolFunc("etcd", "measure on etcd as well, which is built the first time", func(string) (err error) {
		server, err = startEtcd(bg)
		return err
	})
	return program(&server).Run(fs, args, stdout, stderr)
}
