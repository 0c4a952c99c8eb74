package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// requestTimeout is how long one request to the API server may take.
const requestTimeout = 30 * time.Second

// program is the controller and what surrounds it.
type program struct {
	options    *options
	log        *slog.Logger
	client     kubernetes.Interface
	config     *rest.Config
	chooser    *chooser
	controller *controller.Controller
	events     *events
	nodes      *nodeSource
	api        apiCheck
	lease      *leaderelection.HealthzAdaptor // nil without -leader-elect
	elector    atomic.Pointer[leaderelection.LeaderElector]
	renewed    *renewals
	leading    atomic.Bool
	more       chan struct{} // there may be new ClusterCIDRs
}

// work makes the controller and runs it until ctx ends or the lease is lost.
func work(ctx context.Context, p *program) (err error) {
	p.events, p.more = newEvents(p.client), make(chan struct{}, 1)
	defer p.events.stop()
	ctx, cancel := context.WithCancel(ctx)
	if api := p.chooser.api; api != nil {
		api.fence, api.events.write, api.events.successes = p.fence, p.events.entry, p.options.successEvents
		defer api.group.Wait()
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	p.nodes = &nodeSource{client: p.client, first: p.chooser.prepare(p.retry)}
	loaded := p.chooser.loaded
	if set := p.chooser.set; set != nil {
		p.nodes.guess = set.guess
		loaded = func() {
			p.chooser.loaded()
			group.Go(func() { p.backfill(ctx) })
		}
	}
	writer := &nodeWriter{client: p.client, timeout: requestTimeout, fence: p.fence, durations: p.chooser.metrics.writes}
	if p.options.successEvents {
		writer.recorded = func(node string, as nodeipam.Assignment) {
			p.events.node(node, v1.EventTypeNormal, assigned, joined(as))
		}
	}
	p.controller, err = controller.New(controller.Config{
		Allocator: p.chooser.allocator, Source: p.nodes, Loaded: loaded,
		Writer: writer, Workers: p.options.workers, Report: p.report, Worked: p.chooser.metrics.turn,
	})
	if err != nil {
		return err
	}
	p.api.ask = func(ctx context.Context) error {
		return p.client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}
	if p.options.leaderElect {
		p.lease = leaderelection.NewLeaderHealthzAdaptor(p.options.leaseDuration)
	}
	stop, err := p.serve()
	if err != nil {
		return err
	}
	defer stop()
	group.Go(func() { p.watchRights(ctx) })
	if !p.options.leaderElect {
		return p.controller.Run(ctx)
	}
	lock, err := p.lock()
	if err != nil {
		return err
	}
	return p.lead(ctx, lock)
}

// lead runs the controller while it holds the lease.
//
// A lease is never given up before it runs out, not even by a program that is asked
// to stop: a patch that was under way then may still be carried out, and the next
// leader must not list the nodes before that.
func (p *program) lead(outer context.Context, lock resourcelock.Interface) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	ended := make(chan error, 1)
	began := make(chan struct{})
	p.renewed = &renewals{Interface: lock}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          p.renewed,
		LeaseDuration: p.options.leaseDuration,
		RenewDeadline: p.options.renewDeadline,
		RetryPeriod:   p.options.retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				p.leading.Store(true)
				p.log.Info("leading")
				close(began)
				ended <- p.controller.Run(ctx)
				cancel()
			},
			OnStoppedLeading: func() { p.log.Info("not leading") },
		},
		WatchDog: p.lease,
		Name:     p.options.leaseName,
	})
	if err != nil {
		return err
	}
	p.elector.Store(elector)
	elector.Run(ctx)
	select {
	case <-began:
		err := <-ended // after the last answer
		if outer.Err() == nil && errors.Is(err, context.Canceled) {
			return errors.New("the lease was lost")
		}
		return err
	default:
		return context.Cause(ctx)
	}
}

// fence fails if the lease is older than the renew deadline: a process that was paused,
// alone or with its machine, must not write before it notices that another process
// leads. It returns how long no other process can lead, which bounds the time of a
// write. Without -leader-elect there is no limit.
func (p *program) fence() (left time.Duration, err error) {
	if !p.options.leaderElect {
		return math.MaxInt64, nil
	}
	e := p.elector.Load()
	if e == nil || !e.IsLeader() {
		return 0, errors.New("the lease is not held")
	}
	since := p.renewed.since()
	if since > p.options.renewDeadline {
		return 0, fmt.Errorf("the lease was last renewed %v ago", since.Round(time.Millisecond))
	}
	return p.options.leaseDuration - since, nil
}

// fenced returns a context that ends before another process may lead, and after timeout at the
// latest. Every write to the API server but the lease's begins with it, or with the fence itself.
func fenced(ctx context.Context, fence func() (time.Duration, error), timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if fence != nil {
		left, err := fence()
		if err != nil {
			return nil, nil, err
		}
		timeout = min(timeout, left)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, cancel, nil
}

// renewals is a lock that remembers when the last request was sent that renewed it. The
// time of the answer, which the elector goes by, says nothing: a process that is stopped
// in between reads the answer when it goes on, long after the lease has run out.
type renewals struct {
	resourcelock.Interface

	mu   sync.Mutex
	sent time.Time
}

func (r *renewals) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.renew(func() error { return r.Interface.Create(ctx, record) })
}

func (r *renewals) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.renew(func() error { return r.Interface.Update(ctx, record) })
}

func (r *renewals) renew(request func() error) error {
	sent := time.Now()
	err := request()
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent = sent
	}
	return err
}

// since returns the time since the last renewal, by the wall clock if that is more: the
// other one stands still while a machine sleeps.
func (r *renewals) since() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return max(now.Sub(r.sent), now.Round(0).Sub(r.sent.Round(0)))
}

// lock returns the lease to hold. It uses a separate client, because its renewal must not wait
// behind the patches of a thousand nodes.
func (p *program) lock() (resourcelock.Interface, error) {
	config := rest.CopyConfig(p.config)
	config.Timeout = p.options.renewDeadline / 2
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "leader-election"))
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: p.options.leaseNamespace, Name: p.options.leaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())},
	}, nil
}

// report logs a condition of a node, and writes an event when it begins, changes or ends. A
// server that is too busy for a patch is not given events to write as well.
func (p *program) report(node string, err error) {
	if err == nil {
		p.log.Info("the condition of the node has ended", "node", node)
		_, there := p.nodes.Get(node)
		p.events.ended(node, there)
		return
	}
	p.log.Warn("node", "node", node, "err", err)
	if !errors.Is(err, ipalloc.ErrLimit) || reason(err) == recordInvalid {
		p.events.began(node, reason(err), p.message(node, err))
	}
}

// message returns the text of an event. For a node that no ClusterCIDR serves it says
// what becomes of each.
func (p *program) message(name string, err error) string {
	text := err.Error()
	if n, ok := p.nodes.Get(name); ok && p.chooser.set != nil && reason(err) == notAvailable {
		text += "\n" + p.chooser.allocator.Explain(n).String()
	}
	return shortened(text)
}
