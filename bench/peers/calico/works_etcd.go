package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/etcdv3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

const sectionEtcd = "Engine and client, on one etcd"

// sectionCounts has what is counted once, not timed.
const sectionCounts = "Counted"

// fact returns a row of that section, without values.
func fact(id, title string, format func(float64) string) frame.Fact {
	return frame.Fact{Section: sectionCounts, ID: id, Title: title, Values: map[string]float64{}, Format: format}
}

// etcdWindow is the least time of a cell in a pass: an operation takes milliseconds.
const etcdWindow = 250 * time.Millisecond

// etcd is one etcd server that syncs every write, and a client of each kind.
type etcd struct {
	cluster *servers.Etcd
	client  *clientv3.Client
	calico  bapi.Client
	stores  int
}

// startEtcd starts a server that syncs.
func startEtcd(ctx context.Context) (*etcd, error) {
	cluster, err := servers.StartEtcd(ctx, servers.EtcdOptions{})
	if err != nil {
		return nil, err
	}
	e, err := clients(cluster)
	if err != nil {
		cluster.Close()
		return nil, err
	}
	return e, nil
}

// clients connects to a server.
func clients(cluster *servers.Etcd) (*etcd, error) {
	e := &etcd{cluster: cluster}
	var err error
	if e.client, err = clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()}); err == nil {
		e.calico, err = etcdv3.NewEtcdV3Client(&apiconfig.EtcdConfig{EtcdEndpoints: strings.Join(cluster.Endpoints(), ",")})
	}
	return e, err
}

func (e *etcd) close() {
	if e.client != nil {
		e.client.Close()
	}
	e.cluster.Close()
}

// engines returns what makes a contestant with a store of its own; Calico's has one place for it, which is emptied.
func (e *etcd) engines() map[string]func(netip.Prefix) engine {
	return map[string]func(netip.Prefix) engine{
		ours: func(p netip.Prefix) engine {
			e.stores++
			s := must(etcdstore.Open(bg, e.client, fmt.Sprintf("/ipalloc/%d/", e.stores), etcdstore.Options{}))
			return newOurs(s, p, alloc.Config{})
		},
		theirs: func(p netip.Prefix) engine {
			check(e.calico.Clean())
			return newCalicoEngine(e.calico, p)
		},
	}
}

// works are the works on engines that share etcd.
func (e *etcd) works() *frame.Works {
	ws := &frame.Works{Section: sectionEtcd}
	makers := e.engines()
	for _, who := range []string{ours, theirs} {
		wall := func(j *frame.Job) *frame.Job {
			j.Wall, j.Window = true, etcdWindow
			return j
		}
		ws.Add("etcd/1", "AutoAssign + release, a host with a /26 of which 32 are held", who, func() *frame.Job { return wall(pairJob(makers[who](wholeNet), 32)) })
		ws.Add("etcd/32", "AutoAssign + release, 32 callers of one host, 16 blocks half full", who, func() *frame.Job { return wall(crowdJob(makers[who](wholeNet), 32)) })
		ws.Add("etcd/32/locked", "the same, Calico behind a lock of the host, as its CNI plugin has one", who, func() *frame.Job {
			e := makers[who](wholeNet)
			if who == theirs {
				e = &locked{engine: e}
			}
			return wall(crowdJob(e, 32))
		})
		ws.Add("etcd/first", "first address of a new host, 1000 blocks in the cluster", who, func() *frame.Job { return wall(firstJob(makers[who](wholeNet), 1000)) })
	}
	return ws
}

// locked lets one caller in at a time.
type locked struct {
	engine
	mu sync.Mutex
}

func (l *locked) assign(host, handle string, blocks int) (lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine.assign(host, handle, blocks)
}

func (l *locked) release(x lease, handle string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine.release(x, handle)
}

// requests returns how many requests the server has answered, by method.
func (e *etcd) requests() (map[string]float64, error) {
	resp, err := http.Get(e.cluster.Members()[0].MetricsURL() + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return parseRequests(resp.Body)
}

// parseRequests reads the counters of requests of the key-value service.
func parseRequests(r io.Reader) (map[string]float64, error) {
	n := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(name, "grpc_server_handled_total{") || !strings.Contains(name, `grpc_service="etcdserverpb.KV"`) {
			continue
		}
		_, method, _ := strings.Cut(name, `grpc_method="`)
		method, _, _ = strings.Cut(method, `"`)
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		n[method] += v
	}
	return n, lines.Err()
}

// counts counts the requests of a pair, alone and of 32 callers.
func (e *etcd) counts() []frame.Fact {
	var facts []frame.Fact
	makers := e.engines()
	for _, g := range []int{1, 32} {
		f := fact(fmt.Sprintf("etcd/requests/%d", g), fmt.Sprintf("requests to etcd for AutoAssign + release, callers of one host: %d", g), report.Significant)
		for _, who := range []string{ours, theirs} {
			j := crowdJob(makers[who](wholeNet), g)
			j.Run(g) // what is read once is read
			before := must(e.requests())
			const pairs = 20
			j.Run(pairs * g)
			sum := 0.0
			for method, n := range must(e.requests()) {
				sum += n - before[method]
			}
			f.Values[who] = sum / float64(pairs*g)
		}
		facts = append(facts, f)
	}
	return facts
}
