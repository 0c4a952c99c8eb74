package servers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// EtcdOptions says what to run. The zero value is one member.
type EtcdOptions struct {
	// Members is the number of members, 1 by default.
	Members int
	// Flags are for all members and override the flags of this package.
	Flags []string
	// NoSync has etcd leave out fsync: faster, and enough to survive kill -9.
	NoSync bool
	// TLS serves clients over TLS if it is not nil.
	TLS *TLS
	// Proxy returns the address that a member advertises to clients or to its peers instead of its own. It is called before the members
	// start.
	Proxy func(member int, peer bool, address string) (string, error)
}

// Etcd is one or more members. [StartEtcd] makes one.
type Etcd struct {
	dir       string
	members   []*Member
	endpoints []string
}

// Member is one etcd process with its data directory.
type Member struct {
	process
	path, dir, client, metrics string
	args                       []string
	joins                      bool // a cluster that exists
}

// StartEtcd starts a cluster and returns when all members serve. It fails with [ErrSkip], or with an error that holds the end of the
// log of the member that did not start.
func StartEtcd(ctx context.Context, options EtcdOptions) (*Etcd, error) {
	path, err := etcdProgram(ctx)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		e, err := prepareEtcd(path, options)
		if err == nil {
			if err = e.Start(ctx); err == nil {
				return e, nil
			}
			_ = e.Close()
		}
		// A port that was free a moment ago may be taken by the time etcd listens.
		if try == 3 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

func prepareEtcd(path string, options EtcdOptions) (*Etcd, error) {
	n := max(options.Members, 1)
	free, err := freeAddresses(3 * n)
	if err != nil {
		return nil, err
	}
	advertised := append([]string(nil), free...)
	if options.Proxy != nil {
		for i := range 2 * n {
			if advertised[i], err = options.Proxy(i%n, i >= n, free[i]); err != nil {
				return nil, err
			}
		}
	}
	e := &Etcd{}
	if e.dir, err = os.MkdirTemp("", "etcd-*"); err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	scheme := "http://"
	if options.TLS != nil {
		scheme = "https://"
	}
	var cluster []string
	for i := range n {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, advertised[n+i]))
	}
	for i := range n {
		name := fmt.Sprint("m", i)
		m := &Member{path: path, dir: filepath.Join(e.dir, name), client: free[i], metrics: "http://" + free[2*n+i]}
		m.name, m.log = name, m.dir+".log"
		m.args = []string{
			"--name", name, "--data-dir", m.dir, "--log-level", "warn", "--initial-cluster", strings.Join(cluster, ","),
			"--listen-client-urls", scheme + free[i], "--advertise-client-urls", scheme + advertised[i],
			"--listen-peer-urls", "http://" + free[n+i], "--initial-advertise-peer-urls", "http://" + advertised[n+i],
			"--listen-metrics-urls", m.metrics,
		}
		if options.NoSync {
			m.args = append(m.args, "--unsafe-no-fsync")
		}
		if options.TLS != nil {
			m.args = append(m.args, options.TLS.flags()...)
		}
		m.args = append(m.args, options.Flags...)
		e.members = append(e.members, m)
		e.endpoints = append(e.endpoints, scheme+advertised[i])
	}
	return e, nil
}

// Members returns the members.
func (e *Etcd) Members() []*Member { return e.members }

// Endpoints returns the URLs for clients, as the members advertise them.
func (e *Etcd) Endpoints() []string { return e.endpoints }

// Start starts all members and returns when they serve. None may run.
func (e *Etcd) Start(ctx context.Context) error {
	for _, m := range e.members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	return e.WaitHealthy(ctx)
}

// WaitHealthy waits until every member that runs serves linearizable reads. It fails if one ends meanwhile or none runs.
func (e *Etcd) WaitHealthy(ctx context.Context) error {
	running := false
	for _, m := range e.members {
		if m.Running() {
			running = true
			if err := m.WaitHealthy(ctx); err != nil {
				return err
			}
		}
	}
	if !running {
		return fmt.Errorf("servers: etcd %w:\n%s", errEnded, e.LogEnd())
	}
	return nil
}

// Leader waits for a member that says it leads, and returns it.
func (e *Etcd) Leader(ctx context.Context) (*Member, error) {
	for {
		for _, m := range e.members {
			if text, err := ask(ctx, plain, m.metrics+"/metrics", ""); err == nil && strings.Contains(text, "\netcd_server_is_leader 1\n") {
				return m, nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("servers: waiting for a leader: %w", context.Cause(ctx))
		}
	}
}

// LogEnd returns the ends of the members' logs.
func (e *Etcd) LogEnd() (logs string) {
	for _, m := range e.members {
		logs += "-- the end of the log of " + m.name + ":\n" + m.LogEnd() + "\n"
	}
	return logs
}

// Close kills all members and removes their data.
func (e *Etcd) Close() error {
	for _, m := range e.members {
		m.Kill()
	}
	return os.RemoveAll(e.dir)
}

// Name returns the member's name in the cluster.
func (m *Member) Name() string { return m.name }

// ClientAddress returns host:port where the member listens for clients.
func (m *Member) ClientAddress() string { return m.client }

// MetricsURL returns where /health and /metrics are, in plain HTTP.
func (m *Member) MetricsURL() string { return m.metrics }

// DataDir returns the data directory.
func (m *Member) DataDir() string { return m.dir }

// Start starts the member on its former data. It does not wait until the member serves, which takes a quorum: WaitHealthy does.
func (m *Member) Start() error {
	args := m.args
	if m.joins {
		args = append([]string{"--initial-cluster-state", "existing"}, args...)
	}
	cmd := exec.Command(m.path, args...)
	cmd.SysProcAttr = attributes()
	return m.run(cmd)
}

// Wipe kills the member and removes its data. Started again, it joins the cluster as a new one: its former self must have been removed
// from the cluster, and its address added.
func (m *Member) Wipe() error {
	m.Kill()
	m.joins = true
	return os.RemoveAll(m.dir)
}

// Healthy asks the member once whether it serves, which takes a linearizable read and so a quorum.
func (m *Member) Healthy(ctx context.Context) error {
	_, err := ask(ctx, plain, m.metrics+"/health", "")
	return err
}

// WaitHealthy waits until the member serves. It fails if the process ends.
func (m *Member) WaitHealthy(ctx context.Context) error { return m.await(ctx, m.Healthy) }

// plain makes a new connection for each request, because one that is kept may lead to a process that has ended.
var plain = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// The ports to choose from lie below those that systems give to outgoing connections (32768 and up on Linux, 49152 elsewhere): of
// those, one may be gone by the time that a server listens, or starts again.
const firstPort, lastPort = 15000, 32000

// freeAddresses returns n addresses at which no process listens now.
func freeAddresses(n int) (addresses []string, err error) {
	for try := 0; len(addresses) < n; try++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort))))
		if err == nil {
			defer func() { _ = l.Close() }() // open until the last one is found: no address twice
			addresses = append(addresses, l.Addr().String())
		} else if try > 1000 {
			return nil, fmt.Errorf("servers: no free port: %w", err)
		}
	}
	return addresses, nil
}
