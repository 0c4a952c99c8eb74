package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// cluster is three members behind proxies.
type cluster struct {
	*servers.Etcd
	net    *network
	client *clientv3.Client
}

func onEtcd(ctx context.Context) (*subject, error) {
	n := newNetwork()
	c, err := servers.StartEtcd(ctx, servers.EtcdOptions{
		Members: 3, NoSync: true, Proxy: n.proxy,
		Flags: []string{"--strict-reconfig-check=false", "--heartbeat-interval=50", "--election-timeout=500"},
	})
	if err != nil {
		n.close()
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		n.close()
		return nil, errors.Join(err, c.Close())
	}
	k := &cluster{c, n, client}
	closeAll := func() error {
		err := errors.Join(client.Close(), c.Close())
		n.close()
		return err
	}
	kill := func(_ context.Context, m *servers.Member) error { m.Kill(); return nil }
	stop := func(ctx context.Context, m *servers.Member) error { return m.Stop(ctx) }
	start := func(_ context.Context, m *servers.Member) error { return m.Start() }
	pause := func(_ context.Context, m *servers.Member) error { return m.Pause() }
	resume := func(_ context.Context, m *servers.Member) error { return m.Resume() }
	anyone := func(context.Context) (*servers.Member, error) { return c.Members()[rand.IntN(3)], nil }
	return &subject{place: strings.Join(c.Endpoints(), ","), processes: 3, close: closeAll, faults: []fault{
		k.member("leader killed", c.Leader, kill, start),
		k.member("leader ended", c.Leader, stop, start),
		k.member("leader stopped", c.Leader, pause, resume),
		k.member("member stopped", anyone, pause, resume),
		k.member("member cut off from members", anyone, k.cut(false), k.heal),
		k.member("leader cut off from all", c.Leader, k.cut(true), k.heal),
		k.once("connections broken", func(context.Context) error { n.drop(func(l *link) bool { return l.client }); return nil }),
		k.once("member wiped", k.wipe),
		k.once("history compacted", k.compact),
		k.once("database defragmented", k.defragment),
	}}, nil
}

// once is a fault of a moment.
func (k *cluster) once(name string, do func(context.Context) error) fault {
	return fault{name, func(ctx context.Context, _ []*remote, _ time.Duration) error { return do(ctx) }}
}

// member is a fault of one member, after which all serve again.
func (k *cluster) member(name string, which func(context.Context) (*servers.Member, error), begin, end func(context.Context, *servers.Member) error) fault {
	var m *servers.Member
	return lasting(name, func(ctx context.Context) (err error) {
		if m, err = which(ctx); err == nil {
			err = begin(ctx, m)
		}
		return err
	}, func(ctx context.Context) error {
		if err := end(ctx, m); err != nil {
			return err
		}
		return k.WaitHealthy(ctx)
	})
}

// cut separates a member from the others, and from clients, too, if so wanted.
func (k *cluster) cut(clients bool) func(context.Context, *servers.Member) error {
	return func(ctx context.Context, m *servers.Member) error {
		list, err := k.client.MemberList(ctx)
		if err != nil {
			return err
		}
		ids := make(map[uint64]int)
		for _, known := range list.Members {
			ids[known.ID] = slices.IndexFunc(k.Members(), func(m *servers.Member) bool { return m.Name() == known.Name })
		}
		k.net.cut(ids, slices.Index(k.Members(), m), clients)
		return nil
	}
}

// heal ends the cuts. The member was cut off if it does not serve until then.
func (k *cluster) heal(ctx context.Context, m *servers.Member) error {
	defer k.net.heal()
	if m.Healthy(ctx) == nil {
		return errors.New("it serves all the same")
	}
	return nil
}

func (k *cluster) compact(ctx context.Context) error {
	resp, err := k.client.Get(ctx, "x")
	if err == nil {
		_, err = k.client.Compact(ctx, resp.Header.Revision)
	}
	return err
}

func (k *cluster) defragment(ctx context.Context) error {
	for _, endpoint := range k.Endpoints() {
		if _, err := k.client.Defragment(ctx, endpoint); err != nil {
			return err
		}
	}
	return nil
}

// wipe has the leader lose its disk, and puts an empty member in its place, as etcd's guide advises.
func (k *cluster) wipe(ctx context.Context) error {
	m, err := k.Leader(ctx)
	if err != nil {
		return err
	}
	list, err := k.client.MemberList(ctx)
	if err != nil {
		return err
	}
	if err := m.Wipe(); err != nil {
		return err
	}
	for _, known := range list.Members {
		if known.Name != m.Name() {
			continue
		}
		if err := again(ctx, func(ctx context.Context) error { _, err := k.client.MemberRemove(ctx, known.ID); return err }); err != nil {
			return err
		}
		if err := again(ctx, func(ctx context.Context) error { _, err := k.client.MemberAdd(ctx, known.PeerURLs); return err }); err != nil {
			return err
		}
	}
	if err := m.Start(); err != nil {
		return err
	}
	return k.WaitHealthy(ctx)
}

// again repeats a call for as long as an election may take.
func again(ctx context.Context, call func(context.Context) error) (err error) {
	for range 20 {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = call(limited)
		cancel()
		if err == nil {
			return nil
		}
		wait(ctx, 100*time.Millisecond)
	}
	return err
}
