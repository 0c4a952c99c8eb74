package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Cluster is a set of members. Its methods may be called from several goroutines.
type Cluster struct {
	config  Config
	members []*Member
	made    bool // the directory is ours to remove
}

// Start prepares a cluster and starts it. It returns when all members serve, or with
// an error after closing what it has started: those of Prepare and of Cluster.Start.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	// A port that was free a moment ago may be taken by the time etcd listens.
	for try := 0; ; try++ {
		c, err := Prepare(ctx, config)
		if err != nil {
			return nil, err
		}
		err = c.Start(ctx)
		if err == nil {
			return c, nil
		}
		_ = c.Close()
		if try == 3 || !errors.Is(err, ErrInUse) || config.Dir != "" {
			return nil, err
		}
	}
}

// Prepare returns a cluster of which no member runs yet, with its addresses chosen.
// It fails with ErrConfig, with what Binary fails with, or with an error of the file
// system.
func Prepare(ctx context.Context, config Config) (*Cluster, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.Members = max(config.Members, 1)
	n := config.Members
	var err error
	if config.Binary == "" {
		if config.Binary, err = Binary(ctx); err != nil {
			return nil, err
		}
	}
	free, err := FreeAddresses(3 * n)
	if err != nil {
		return nil, err
	}
	for i, addresses := range []*[]string{&config.Client, &config.Peer} {
		if len(*addresses) == 0 {
			*addresses = free[i*n : (i+1)*n]
		}
	}
	if len(config.AdvertiseClient) == 0 {
		config.AdvertiseClient = config.Client
	}
	if len(config.AdvertisePeer) == 0 {
		config.AdvertisePeer = config.Peer
	}
	c := &Cluster{config: config}
	if config.Dir == "" {
		if c.config.Dir, err = os.MkdirTemp("", "etcd-*"); err != nil {
			return nil, fmt.Errorf("etcdtest: %w", err)
		}
		c.made = true
	}
	for i := range n {
		c.members = append(c.members, newMember(&c.config, i, free[2*n+i]))
	}
	return c, nil
}

// Start starts all members and waits until all serve. It fails with ErrExited
// or ErrInUse if a member ends, or with the error of ctx, and leaves the others
// running: Close ends them.
func (c *Cluster) Start(ctx context.Context) error {
	for _, m := range c.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	return c.WaitHealthy(ctx)
}

// Members returns the members.
func (c *Cluster) Members() []*Member { return c.members }

// Dir returns the directory of data and logs.
func (c *Cluster) Dir() string { return c.config.Dir }

// Endpoints returns the URLs for clients, as the members advertise them.
func (c *Cluster) Endpoints() (urls []string) {
	for i := range c.members {
		urls = append(urls, c.config.clientURL(c.config.AdvertiseClient[i]))
	}
	return urls
}

// WaitHealthy waits until every member that runs serves linearizable reads, and one
// at least runs. It fails with ErrExited or ErrInUse if one ends meanwhile, or with
// the error of ctx.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	running := 0
	for _, m := range c.members {
		if m.Running() {
			running++
			if err := m.WaitHealthy(ctx); err != nil {
				return err
			}
		}
	}
	if running == 0 {
		return fmt.Errorf("etcdtest: %w: no member runs", ErrExited)
	}
	return nil
}

// Leader waits for a member that says it leads, and returns it. It fails with the
// error of ctx.
func (c *Cluster) Leader(ctx context.Context) (*Member, error) {
	var leader *Member
	err := poll(ctx, "a leader", func() (bool, error) {
		for _, m := range c.members {
			if m.leads(ctx) {
				leader = m
			}
		}
		return leader != nil, nil
	})
	return leader, err
}

// Close kills all members and removes the directory if it was not given. The cluster
// can't be started again.
func (c *Cluster) Close() error {
	for _, m := range c.members {
		m.Kill()
	}
	if c.made {
		return os.RemoveAll(c.config.Dir)
	}
	return nil
}

// logTail is how much of a log is worth reading.
const logTail = 8 << 10

// WriteLogs writes the ends of the members' logs.
func (c *Cluster) WriteLogs(w io.Writer) {
	for _, m := range c.members {
		fmt.Fprintf(w, "-- the end of %s:\n%s\n", filepath.Base(m.LogPath()), strings.TrimSpace(m.logEnd(0)))
	}
}

// pollEvery is the pause between looks at what can't be waited for.
const pollEvery = 50 * time.Millisecond

// poll calls ok until it says so or fails, or ctx ends.
func poll(ctx context.Context, what string, ok func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("etcdtest: waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
