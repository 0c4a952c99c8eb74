package main

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

func onEtcd(ctx context.Context) (*subject, error) {
	c, err := servers.StartEtcd(ctx, servers.EtcdOptions{Members: 3, NoSync: true, Flags: []string{"--strict-reconfig-check=false"}})
	if err != nil {
		return nil, err
	}
	leader := func(name string, begin, end func(*servers.Member) error) fault {
		var m *servers.Member
		return lasting(name, func(ctx context.Context) (err error) {
			if m, err = c.Leader(ctx); err == nil {
				err = begin(m)
			}
			return err
		}, func(ctx context.Context) error {
			if err := end(m); err != nil {
				return err
			}
			return c.WaitHealthy(ctx)
		})
	}
	kill := func(m *servers.Member) error { m.Kill(); return nil }
	return &subject{place: strings.Join(c.Endpoints(), ","), processes: 3, close: c.Close, faults: []fault{
		leader("leader killed", kill, (*servers.Member).Start),
		leader("leader stopped", (*servers.Member).Pause, (*servers.Member).Resume),
		{"member wiped", func(ctx context.Context, _ victims, _ time.Duration) error { return wipe(ctx, c) }},
		{"history compacted", func(ctx context.Context, _ victims, _ time.Duration) error {
			client, err := admin(c)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			resp, err := client.Get(ctx, "x")
			if err == nil {
				_, err = client.Compact(ctx, resp.Header.Revision)
			}
			return err
		}},
	}}, nil
}

func admin(c *servers.Etcd) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
}

// wipe has the leader lose its disk, and puts an empty member in its place, as etcd's guide advises.
func wipe(ctx context.Context, c *servers.Etcd) error {
	m, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	client, err := admin(c)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	list, err := client.MemberList(ctx)
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
		if err := again(ctx, func(ctx context.Context) error { _, err := client.MemberRemove(ctx, known.ID); return err }); err != nil {
			return err
		}
		if err := again(ctx, func(ctx context.Context) error { _, err := client.MemberAdd(ctx, known.PeerURLs); return err }); err != nil {
			return err
		}
	}
	if err := m.Start(); err != nil {
		return err
	}
	return c.WaitHealthy(ctx)
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
