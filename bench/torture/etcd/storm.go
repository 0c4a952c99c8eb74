package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc/bench/torture/history"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
)

// pool is what the writers share.
var pool = netip.MustParsePrefix("10.0.0.0/24")

// checkLimit is how long the checker may think.
const checkLimit = 10 * time.Minute

// cluster is three members behind proxies.
type cluster struct {
	*servers.Etcd
	net    *network
	client *clientv3.Client
	random *rand.Rand
	hold   time.Duration
	say    func(string, ...any)
}

// newCluster starts the members and learns their IDs.
func newCluster(ctx context.Context, c config, say func(string, ...any)) (*cluster, error) {
	n := newNetwork()
	ec, err := servers.StartEtcd(ctx, servers.EtcdOptions{
		Members: 3, NoSync: !c.Sync, Flags: []string{"--heartbeat-interval=50", "--election-timeout=500"},
		Proxy: func(member int, peer bool, address string) (string, error) {
			l, err := n.listen()
			if err != nil {
				return "", err
			}
			n.serve(l, member, !peer, address)
			return l.Addr().String(), nil
		},
	})
	if err != nil {
		n.close()
		return nil, err
	}
	k := &cluster{Etcd: ec, net: n, random: rand.New(rand.NewPCG(c.Seed, 0)), hold: c.Hold, say: say}
	k.client, err = connect(ec.Endpoints())
	if err == nil {
		err = k.learn(ctx)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// learn has the proxies know the members by their IDs.
func (k *cluster) learn(ctx context.Context) error {
	list, err := k.client.MemberList(ctx)
	if err != nil {
		return err
	}
	k.net.mu.Lock()
	defer k.net.mu.Unlock()
	for _, m := range list.Members {
		k.net.names[m.ID] = slices.IndexFunc(k.Members(), func(x *servers.Member) bool { return x.Name() == m.Name })
	}
	// Links from before are of nobody that is known: they come again.
	for l := range k.net.links {
		if !l.client {
			_ = l.ends[0].Close()
			_ = l.ends[1].Close()
		}
	}
	return nil
}

func (k *cluster) close() {
	if k.client != nil {
		_ = k.client.Close()
	}
	_ = k.Close()
	k.net.close()
}

// storm torments the cluster while writers work.
func storm(ctx context.Context, c config, say func(string, ...any)) error {
	k, err := newCluster(ctx, c, say)
	if err != nil {
		return err
	}
	defer k.close()
	e, s, err := openEngine(ctx, k.client)
	if err != nil {
		return err
	}
	if err := e.AddPool(ctx, ipset.Pool{Name: "p", Prefix: pool, BlockBits: 28}); err != nil {
		return err
	}
	a := startAudit(ctx, k.Endpoints())
	ws, err := startWorkers(c, k.Endpoints())
	if err != nil {
		return err
	}
	faultErr := k.faults(ctx, c.Duration, a)
	results, err := ws.stop()
	if err := errors.Join(faultErr, err); err != nil {
		return err
	}
	steps, err := report(results, say)
	if err != nil {
		return err
	}
	if err := history.Check(steps, checkLimit); err != nil {
		return err
	}
	say("the history of %d operations is linearizable", len(steps))
	fresh, err := ipset.New(s, ipset.Options{})
	if err != nil {
		return err
	}
	if err := history.Verify(ctx, fresh, history.Held(steps)); err != nil {
		return err
	}
	say("%d addresses are held, all and only those that were given", len(history.Held(steps)))
	return a.finish(ctx, s, say)
}

// faults has one fault after the other, each followed by as long a time without, until the time is over and each has been had.
func (k *cluster) faults(ctx context.Context, duration time.Duration, a *audit) error {
	type fault struct {
		name string
		do   func(context.Context) error
	}
	all := []fault{
		{"leader stopped and started", k.leaderStops}, {"compaction", k.compacts}, {"member cut off from members", k.cutsOff(false, false)}, {"defragmentation", k.defragments},
		{"leader cut off from all", k.cutsOff(true, true)}, {"leader killed and started", k.leaderDies}, {"connections broken", k.breaks},
		{"member paused", k.pauses},
	}
	end := time.Now().Add(duration)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		for _, f := range all {
			before := a.count()
			if err := f.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			if err := k.WaitHealthy(ctx); err != nil {
				return err
			}
			during := a.count()
			if err := wait(ctx, k.hold/2); err != nil {
				return err
			}
			k.say("%-30s %5d commits seen meanwhile, %5d after it", f.name, during-before, a.count()-during)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *cluster) leaderStops(ctx context.Context) error {
	leader, err := k.Leader(ctx)
	if err != nil {
		return err
	}
	if err := leader.Stop(ctx); err != nil {
		return err
	}
	if err := wait(ctx, k.hold); err != nil {
		return err
	}
	return leader.Start()
}

func (k *cluster) leaderDies(ctx context.Context) error {
	leader, err := k.Leader(ctx)
	if err != nil {
		return err
	}
	leader.Kill()
	if err := wait(ctx, k.hold); err != nil {
		return err
	}
	return leader.Start()
}

// cutsOff separates one member from the others, in the middle of whatever goes on, and from the clients if so wanted.
func (k *cluster) cutsOff(leader, clients bool) func(context.Context) error {
	return func(ctx context.Context) error {
		i := k.random.IntN(3)
		if leader {
			m, err := k.Leader(ctx)
			if err != nil {
				return err
			}
			i = slices.Index(k.Members(), m)
		}
		k.net.cut(i, clients)
		defer k.net.heal()
		if err := wait(ctx, k.hold); err != nil {
			return err
		}
		if k.Members()[i].Healthy(ctx) == nil {
			return errors.New("it serves all the same")
		}
		return nil
	}
}

// pauses has a member stand still with its connections open.
func (k *cluster) pauses(ctx context.Context) error {
	m := k.Members()[k.random.IntN(3)]
	if err := m.Pause(); errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	err := wait(ctx, k.hold)
	return errors.Join(err, m.Resume())
}

// breaks closes the connections of clients to all members a few times.
func (k *cluster) breaks(ctx context.Context) error {
	for range 5 {
		k.net.mu.Lock()
		for l := range k.net.links {
			if l.client {
				_ = l.ends[0].Close()
				_ = l.ends[1].Close()
			}
		}
		k.net.mu.Unlock()
		if err := wait(ctx, k.hold/5); err != nil {
			return err
		}
	}
	return nil
}

func (k *cluster) compacts(ctx context.Context) error {
	resp, err := k.client.Get(ctx, prefix)
	if err != nil {
		return err
	}
	_, err = k.client.Compact(ctx, resp.Header.Revision)
	return err
}

func (k *cluster) defragments(ctx context.Context) error {
	for _, endpoint := range k.Endpoints() {
		if _, err := k.client.Defragment(ctx, endpoint); err != nil {
			return err
		}
	}
	return nil
}

// workers are the processes of the writers.
type workers struct {
	cmds    []*exec.Cmd
	inputs  []io.Closer
	outputs []chan outcome
}

type outcome struct {
	result result
	err    error
}

func startWorkers(c config, endpoints []string) (*workers, error) {
	ws := &workers{}
	for i := range c.Processes {
		n := c.Writers / c.Processes
		if i < c.Writers%c.Processes {
			n++
		}
		cmd, err := command(orders{Endpoints: endpoints, Name: fmt.Sprint("w", i), Writers: n, Seed: c.Seed + uint64(i)})
		if err != nil {
			return nil, err
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		done := make(chan outcome, 1)
		go func() {
			var o outcome
			o.err = json.NewDecoder(out).Decode(&o.result)
			done <- o
		}()
		ws.cmds, ws.inputs, ws.outputs = append(ws.cmds, cmd), append(ws.inputs, in), append(ws.outputs, done)
	}
	return ws, nil
}

// stop has the workers finish what they are at, and returns what they report.
func (ws *workers) stop() ([]result, error) {
	for _, in := range ws.inputs {
		_ = in.Close()
	}
	var results []result
	var errs []error
	for i, out := range ws.outputs {
		o := <-out
		results = append(results, o.result)
		errs = append(errs, o.err, ws.cmds[i].Wait())
		if o.result.Err != "" {
			errs = append(errs, fmt.Errorf("process %d: %s", i, o.result.Err))
		}
	}
	return results, errors.Join(errs...)
}

// report prints what the writers saw.
func report(results []result, say func(string, ...any)) ([]history.Step, error) {
	var steps []history.Step
	var errs []error
	kinds := make(map[history.Kind]int)
	errors_ := make(map[string]int)
	unknown := 0
	for i, r := range results {
		for _, s := range r.Steps {
			s.Client += 100 * i
			steps = append(steps, s)
			kinds[s.Kind]++
		}
		for what, n := range r.Errors {
			errors_[what] += n
		}
		unknown += r.Unknown
		for _, w := range r.Wrong {
			errs = append(errs, fmt.Errorf("an error that says nothing: %s", w))
		}
	}
	say("%d operations in %d processes: %v; %d attempts with unknown outcome, all settled", len(steps), len(results), kinds, unknown)
	say("tried: %d operations", len(steps))
	for _, what := range slices.Sorted(maps.Keys(errors_)) {
		say("  %6d x %s", errors_[what], what)
	}
	return steps, errors.Join(errs...)
}
