// The node-ipam-controller gives the nodes of a Kubernetes cluster their pod CIDRs:
// the job of the node IPAM controller in kube-controller-manager, done with package
// nodeipam, or by labels with package clustercidr. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// requestTimeout is how long one request to the API server may take.
const requestTimeout = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, out io.Writer) int {
	log := slog.New(slog.NewTextHandler(out, nil))
	o, err := parseOptions(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		log.Error("bad flags", "err", err)
		return 2
	}
	engine, stats, err := newEngine(o)
	if err != nil {
		log.Error("bad configuration", "err", err)
		return 2
	}
	config, err := clientcmd.BuildConfigFromFlags(o.master, o.kubeconfig)
	if err != nil {
		log.Error("no way to the API server", "err", err)
		return 1
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "node-ipam-controller"))
	if err != nil {
		log.Error("no way to the API server", "err", err)
		return 1
	}
	p := &program{options: o, log: log, client: client, config: config, pools: stats}
	p.events = newEvents(client, log)
	defer p.events.stop()
	source := &nodeSource{client: client}
	p.controller, err = nodeipam.NewController(nodeipam.ControllerConfig{
		Engine: engine, Source: source, Writer: &nodeWriter{client: client, timeout: requestTimeout},
		Workers: o.workers, Report: p.report,
	})
	if err == nil {
		err = p.run(ctx)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Error("stopped", "err", err)
		return 1
	}
	return 0
}

// newEngine returns what chooses the CIDRs, and the counts of its pools.
func newEngine(o *options) (nodeipam.Engine, func() []poolCount, error) {
	if o.clusterCIDRs != "" {
		a, err := newLabelled(o)
		if err != nil {
			return nil, nil, err
		}
		return labelled{a}, func() []poolCount { return labelledCounts(a) }, nil
	}
	c, err := o.rangeConfig()
	if err != nil {
		return nil, nil, err
	}
	a, err := nodeipam.New(c)
	if err != nil {
		return nil, nil, err
	}
	return a.Engine(), func() []poolCount { return rangeCounts(a) }, nil
}

// program is the controller and what surrounds it.
type program struct {
	options    *options
	log        *slog.Logger
	client     kubernetes.Interface
	config     *rest.Config
	controller *nodeipam.Controller
	events     *events
	pools      func() []poolCount
}

// run serves health and metrics, and works, as leader if that is asked for, until
// ctx ends or the lease is lost.
func (p *program) run(outer context.Context) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	stop, err := p.serve()
	if err != nil {
		return err
	}
	defer stop()
	if !p.options.leaderElect {
		return p.controller.Run(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	// The lease goes over a client of its own: its renewal must not wait behind the
	// patches of a thousand nodes.
	config := rest.CopyConfig(p.config)
	config.Timeout = p.options.renewDeadline / 2
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "leader-election"))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	began := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: p.options.leaseNamespace, Name: p.options.leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())},
		},
		LeaseDuration: p.options.leaseDuration,
		RenewDeadline: p.options.renewDeadline,
		RetryPeriod:   p.options.retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				p.log.Info("leading")
				close(began)
				ended <- p.controller.Run(ctx)
				cancel()
			},
			OnStoppedLeading: func() { p.log.Info("not leading") },
		},
		Name: p.options.leaseName,
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	select {
	case <-began:
		err := <-ended // the lease runs out after the last write, not before
		if outer.Err() == nil && errors.Is(err, context.Canceled) {
			return errors.New("the lease was lost")
		}
		return err
	default:
		return context.Cause(ctx)
	}
}

func (p *program) report(node string, err error) {
	p.log.Warn("node", "name", node, "err", err)
	p.events.node(node, err)
}
