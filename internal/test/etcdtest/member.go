package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The errors of members that do not run.
var (
	// ErrExited: the member's process has ended, or was never started.
	ErrExited = errors.New("etcd does not run")
	// ErrInUse: the member found one of its addresses taken.
	ErrInUse = errors.New("address in use")
	// ErrUnhealthy: the member answers that it can't serve, or does not answer.
	ErrUnhealthy = errors.New("etcd is not healthy")
	// ErrRunning: the member runs already.
	ErrRunning = errors.New("etcd runs already")
)

// Member is one etcd. Its methods may be called from several goroutines.
type Member struct {
	config  *Config
	index   int
	metrics string // address of health and metrics

	mu      sync.Mutex
	process *process
	logFrom int64 // where the log of the running process begins
	joins   bool  // a cluster that exists
}

func newMember(config *Config, index int, metrics string) *Member {
	return &Member{config: config, index: index, metrics: metrics}
}

func memberName(i int) string { return fmt.Sprintf("m%d", i) }

// Name returns the member's name in the cluster.
func (m *Member) Name() string { return memberName(m.index) }

// ClientAddress returns host:port where the member listens for clients.
func (m *Member) ClientAddress() string { return m.config.Client[m.index] }

// PeerAddress returns host:port where it listens for other members.
func (m *Member) PeerAddress() string { return m.config.Peer[m.index] }

// MetricsURL returns where /health and /metrics are.
func (m *Member) MetricsURL() string { return "http://" + m.metrics }

// DataDir returns the data directory.
func (m *Member) DataDir() string { return filepath.Join(m.config.Dir, m.Name()) }

// LogPath returns the file that holds what all processes of this member have said.
func (m *Member) LogPath() string { return m.DataDir() + ".log" }

// clientURL returns the URL of an address for clients.
func (c *Config) clientURL(address string) string {
	if c.TLS != nil {
		return "https://" + address
	}
	return "http://" + address
}

// arguments returns the command line.
func (m *Member) arguments() []string {
	c := m.config
	var cluster []string
	for i, address := range c.AdvertisePeer {
		cluster = append(cluster, memberName(i)+"=http://"+address)
	}
	args := []string{
		"--name", m.Name(), "--data-dir", m.DataDir(), "--log-level", "warn",
		"--listen-client-urls", c.clientURL(m.ClientAddress()),
		"--advertise-client-urls", c.clientURL(c.AdvertiseClient[m.index]),
		"--listen-peer-urls", "http://" + m.PeerAddress(),
		"--initial-advertise-peer-urls", "http://" + c.AdvertisePeer[m.index],
		"--initial-cluster", strings.Join(cluster, ","),
		"--listen-metrics-urls", m.MetricsURL(),
	}
	if m.joins {
		args = append(args, "--initial-cluster-state", "existing")
	}
	if c.NoSync {
		args = append(args, "--unsafe-no-fsync")
	}
	if c.TLS != nil {
		args = append(args, c.TLS.flags()...)
	}
	return append(args, c.Flags...)
}

// start starts the process and does not wait for it to serve.
func (m *Member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process.running() {
		return fmt.Errorf("etcdtest: %s: %w", m.Name(), ErrRunning)
	}
	log, err := os.OpenFile(m.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("etcdtest: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	if m.logFrom, err = log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("etcdtest: %w", err)
	}
	if m.process, err = launch(log, m.config.Binary, m.arguments()); err != nil {
		return fmt.Errorf("etcdtest: %s: %w", m.Name(), err)
	}
	return nil
}

// Start starts the member again on the data it left, and does not wait until it
// serves, which it can't do before a quorum runs: WaitHealthy does. It fails with
// ErrRunning, or with the error of starting a process.
func (m *Member) Start() error { return m.start() }

// Wipe ends the process by SIGKILL and removes its data. A member that is started then joins the cluster as a new one: its
// former self must have been removed from the cluster, and its address added.
func (m *Member) Wipe() error {
	m.Kill()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joins = true
	return os.RemoveAll(m.DataDir())
}

// Running says whether the process runs, paused or not.
func (m *Member) Running() bool { return m.current().running() }

// PID returns the process id, 0 if there is no process.
func (m *Member) PID() int {
	if p := m.current(); p.running() {
		return p.cmd.Process.Pid
	}
	return 0
}

// Exited returns a channel that is closed when the process that runs now has ended;
// it is closed already if none runs.
func (m *Member) Exited() <-chan struct{} {
	if p := m.current(); p != nil {
		return p.ended
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (m *Member) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// Kill ends the process by SIGKILL, paused or not, and returns when it is gone; the
// data stays. It does nothing to a member that does not run.
func (m *Member) Kill() {
	if p := m.current(); p.running() {
		_ = p.cmd.Process.Kill() // fails for one that has ended
		<-p.ended
	}
}

// Stop asks the process to end, as a service manager would, and returns when it is
// gone. It fails with the error of ctx, and the process may end later then.
func (m *Member) Stop(ctx context.Context) error {
	p := m.current()
	if !p.running() {
		return nil
	}
	if err := terminate(p.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("etcdtest: stop %s: %w", m.Name(), err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("etcdtest: stop %s: %w", m.Name(), context.Cause(ctx))
	}
}

// Pause stops the process by SIGSTOP: its connections stay open and nothing answers.
// On Linux it returns when the process stands still, elsewhere maybe just before. It
// fails with ErrExited, or with errors.ErrUnsupported where there is no SIGSTOP.
func (m *Member) Pause() error { return m.signal("pause", pause) }

// Resume lets a paused process go on. It fails as Pause does.
func (m *Member) Resume() error { return m.signal("resume", resume) }

func (m *Member) signal(what string, f func(*os.Process) error) error {
	p := m.current()
	err := ErrExited
	if p.running() {
		err = f(p.cmd.Process)
	}
	if err != nil {
		return fmt.Errorf("etcdtest: %s %s: %w", what, m.Name(), err)
	}
	return nil
}

// probe is the client for health and metrics: a new connection each time, as one that
// is kept may be to a process that has ended.
var probe = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (m *Member) get(ctx context.Context, path string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.MetricsURL()+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := probe.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// Healthy asks the member once whether it serves, which takes a linearizable read and
// so a quorum. It fails with ErrUnhealthy, or with ErrExited or ErrInUse.
func (m *Member) Healthy(ctx context.Context) error {
	if err := m.exit(); err != nil {
		return err
	}
	status, body, err := m.get(ctx, "/health")
	switch {
	case err != nil:
		return fmt.Errorf("etcdtest: %s: %w: %w", m.Name(), ErrUnhealthy, err)
	case status != http.StatusOK:
		return fmt.Errorf("etcdtest: %s: %w: %s", m.Name(), ErrUnhealthy, strings.TrimSpace(body))
	}
	return nil
}

// WaitHealthy waits until the member serves. It fails with ErrExited or ErrInUse if
// the process ends, or with the error of ctx.
func (m *Member) WaitHealthy(ctx context.Context) error {
	return poll(ctx, m.Name()+" to be healthy", func() (bool, error) {
		err := m.Healthy(ctx)
		if errors.Is(err, ErrUnhealthy) {
			return false, nil
		}
		return err == nil, err
	})
}

// leads says whether the member thinks it leads.
func (m *Member) leads(ctx context.Context) bool {
	if !m.Running() {
		return false
	}
	_, body, err := m.get(ctx, "/metrics")
	return err == nil && strings.Contains(body, "\netcd_server_is_leader 1\n")
}

// exit returns why no process runs, nil if one does.
func (m *Member) exit() error {
	m.mu.Lock()
	p, from := m.process, m.logFrom
	m.mu.Unlock()
	if p.running() {
		return nil
	}
	if p == nil {
		return fmt.Errorf("etcdtest: %s: %w", m.Name(), ErrExited)
	}
	said := strings.TrimSpace(m.logEnd(from))
	err := ErrExited
	if strings.Contains(said, "address already in use") {
		err = ErrInUse
	}
	return fmt.Errorf("etcdtest: %s: %w: %s\n%s", m.Name(), err, p.cmd.ProcessState, said)
}

// logEnd returns the end of the log, nothing that is before from.
func (m *Member) logEnd(from int64) string {
	file, err := os.Open(m.LogPath())
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil {
		from = max(from, info.Size()-logTail)
	}
	text, err := io.ReadAll(io.NewSectionReader(file, from, logTail))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
