// The node-ipam-controller gives the nodes of a Kubernetes cluster their pod CIDRs:
// the job of the node IPAM controller in kube-controller-manager, done with package
// nodeipam. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cmd/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 after a signal, or if a dry run finds nothing wrong; 1 if
// the work could not go on; 2 for wrong flags or a wrong file; 3 if a dry run finds
// something wrong, or the node of -explain has and would get no CIDRs.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	log := slog.New(slog.NewTextHandler(errs, nil))
	o, err := parseOptions(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil && o.version:
		module, goVersion := version.Of()
		_, _ = fmt.Fprintf(out, "node-ipam-controller %s (%s)\n", module, goVersion)
		return 0
	case err != nil:
		log.Error("bad flags", "err", err)
		return 2
	}
	log = o.logger(errs)
	klog.SetSlogLogger(log) // what client-go has to say
	chooser, err := newChooser(o, log)
	if err != nil {
		log.Error("bad configuration", "err", err)
		return 2
	}
	config, client, objects, err := o.connect()
	if err != nil {
		log.Error("no way to the API server", "err", err)
		return 1
	}
	if chooser.set != nil {
		chooser.api = &entryAPI{entrySet: chooser.set, client: objects, discovery: client.Discovery(), period: o.syncPeriod, readOnly: o.dryRun || o.explain != ""}
	}
	chooser.services.client, chooser.services.once = client, o.dryRun || o.explain != ""
	chooser.metrics.install()
	switch {
	case o.explain != "":
		err = explain(ctx, out, client, chooser, o.explain)
	case o.dryRun:
		err = dryRun(ctx, out, client, chooser)
	default:
		err = work(ctx, &program{options: o, log: log, client: client, config: config, chooser: chooser})
	}
	switch {
	case errors.Is(err, errWrong):
		return 3
	case err != nil && !errors.Is(err, context.Canceled):
		log.Error("stopped", "err", err)
		return 1
	}
	return 0
}

// connect returns the clients of the API server: of its own kinds, and of all.
func (o *options) connect() (*rest.Config, kubernetes.Interface, dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags(o.master, o.kubeconfig)
	if err != nil {
		return nil, nil, nil, err
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "node-ipam-controller"))
	if err != nil {
		return nil, nil, nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	return config, client, objects, err
}

// logger returns the log that the flags ask for.
func (o *options) logger(w io.Writer) *slog.Logger {
	level := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, level))
	}
	return slog.New(slog.NewTextHandler(w, level))
}

// chooser is what chooses the CIDRs of nodes.
type chooser struct {
	allocator *nodeipam.Allocator
	services  *serviceCIDRs
	metrics   *metrics
	ranges    []poolName // with RangeAllocator
	set       *entrySet  // with MultiCIDRRangeAllocator
	api       *entryAPI  // that fills set
}

// prepare returns what starts before the nodes are loaded: retry is called when there is
// more to give.
func (c *chooser) prepare(retry func()) (first []func(context.Context) error) {
	if c.services.client != nil {
		c.services.freed = retry
		first = append(first, c.services.start)
	}
	if c.api != nil {
		c.api.added = retry
		first = append(first, c.api.start)
	}
	return first
}

// pools returns the pools that there are.
func (c *chooser) pools() []poolName {
	if c.set == nil {
		return c.ranges
	}
	var pools []poolName
	for e := range c.allocator.Entries() {
		for _, p := range []netip.Prefix{e.IPv4, e.IPv6} {
			if p.IsValid() {
				pools = append(pools, poolName{p, e.Name})
			}
		}
	}
	return pools
}

// loaded runs when the nodes of the start have been loaded.
func (c *chooser) loaded() {
	if c.set != nil {
		c.set.nodesLoaded()
	}
}

func newChooser(o *options, log *slog.Logger) (*chooser, error) {
	fixed, err := prefixes("service-cluster-ip-range", o.serviceCIDRs)
	if err != nil {
		return nil, err
	}
	c := &chooser{services: &serviceCIDRs{fixed: fixed, log: log}, metrics: newMetrics(o.byLabels())}
	counted := nodeipam.OnChange(func(change nodeipam.Change) { c.metrics.change(change, c.pools) })
	if o.byLabels() {
		var within []netip.Prefix
		if c.allocator, within, err = newLabelled(o, fixed, counted); err != nil {
			return nil, err
		}
		c.set = &entrySet{allocator: c.allocator, log: log, within: within}
	} else {
		var config nodeipam.Config
		if config, err = o.rangeConfig(fixed); err == nil {
			c.allocator, err = nodeipam.New(config, counted)
			err = o.flagOf(config, err)
			for _, s := range config.Slots {
				for _, p := range s.Pools {
					c.ranges = append(c.ranges, poolName{prefix: p})
				}
			}
		}
	}
	c.services.allocator = c.allocator
	return c, err
}
