// Command durable gives the pods of a trace their addresses, as examples/cluster does, and keeps them
// where -store says: in memory, in a file, in a SQL database, in etcd, or in a Kubernetes API server. Stop it
// anywhere, with Ctrl-C or kill -9,
// and start it again: it goes on where it was, and ends as if it had never stopped.
//
//	durable -store memory                              # the default; nothing is kept
//	durable -store bolt:///var/lib/durable.db          # a file of this machine
//	durable -store sqlite:///var/lib/durable.sqlite     # a SQLite file of this machine
//	durable -store postgres://ipam@10.0.0.1/durable    # a PostgreSQL of many machines
//	durable -store etcd://10.0.0.1:2379/durable        # etcd on many machines
//	durable -store kube://default/durable              # objects of a Kubernetes API server
//	durable -store bolt:///var/lib/durable.db -copy-to etcd://10.0.0.1:2379/durable
//
// What it finds in the end goes to standard output, and depends on the traces alone; what happens on
// the way goes to standard error. README.md is a walk through all of it.
//
// store.go opens stores, run.go replays; the pods' network is examples/internal/podnet.
//
// Exit status: 0 when all went well; 1 when a promise was broken, a pool is too small or the store
// failed; 2 for wrong flags or a malformed trace; 130 when it was stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ipalloc/ipalloc/examples/internal/podnet"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/internal/storeurl"
)

const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitStopped = 130 // what shells report of a program that Ctrl-C ended
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "durable: %v\n", err)
		return exitUsage
	}
	if cfg.copyTo != nil {
		err = copyStore(ctx, cfg, stdout)
	} else {
		err = replay(ctx, cfg, stdout, stderr)
	}
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "durable: stopped; %s\n", again(cfg.store))
		return exitStopped
	default:
		fmt.Fprintf(stderr, "durable: %v\n", err)
		return exitFailed
	}
}

// config is what the flags and the traces say.
type config struct {
	store  *storeurl.Location
	copyTo *storeurl.Location // or nil
	net    podnet.Config
	source string // what the trace of pods is called
	place  trace.Placement
	pace   time.Duration
	events bool
	ascii  bool
}

// kinds are the kinds of stores that this program opens.
var kinds = []string{"memory", "bolt", "sqlite", "postgres", "etcd", "kube"}

// parse reads the flags and the traces. It prints the help itself; every other fault is returned.
func parse(args []string, stderr io.Writer) (*config, error) {
	cfg := &config{source: "the built-in trace"}
	flags := flag.NewFlagSet("durable", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	store := flags.String("store", "memory", "the `store`: memory, bolt:///path/of/file, sqlite:///path/of/file, postgres://user@host:port/database, etcd://host:port,host:port/prefix, or kube://namespace/name")
	copyTo := flags.String("copy-to", "", "copy all that is in the store to this other, empty `store`, and end")
	nodesFile := flags.String("nodes", "", "trace of nodes: a CSV `file` (default: a built-in trace of 40 nodes)")
	var pods podnet.Flags
	pods.Register(flags)
	flags.DurationVar(&cfg.pace, "pace", 0, "wait so long after each event, to have time to stop it")
	flags.BoolVar(&cfg.events, "events", false, "tell every event")
	flags.BoolVar(&cfg.ascii, "ascii", false, "draw the map in plain ASCII")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: durable [flags]\n\nGives the pods of a trace their addresses and keeps them in a store. Stop it anywhere and start it\nagain: it goes on.")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: a store is named with -store", flags.Arg(0))
	}
	var err error
	if cfg.store, err = storeurl.Parse("-store", *store, kinds...); err != nil {
		return nil, err
	}
	if *copyTo != "" {
		if cfg.copyTo, err = storeurl.Parse("-copy-to", *copyTo, kinds...); err != nil {
			return nil, err
		}
		if cfg.store.Kind == "memory" || cfg.copyTo.Kind == "memory" {
			return nil, errors.New("-copy-to: nothing is kept in memory")
		}
	}
	return cfg, cfg.load(*nodesFile, &pods)
}

// load reads the traces.
func (c *config) load(nodesFile string, flags *podnet.Flags) (err error) {
	if c.net, c.place, err = flags.Config(); err != nil {
		return err
	}
	if len(c.net.Ranges) == 0 {
		return errors.New("-podpool4 and -podpool6 are both none: nothing to give to the pods")
	}
	if c.net.Nodes, err = trace.LoadNodes(nodesFile); err != nil {
		return err
	}
	pods, err := trace.LoadPods(flags.File, c.net.Nodes)
	if err != nil {
		return err
	}
	if flags.File != "" {
		c.source = flags.File
	}
	c.net.Events = trace.Schedule(c.net.Nodes, pods, c.place)
	return nil
}
