package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// opened is a store to measure.
type opened struct {
	store.Store
	file  func(ctx context.Context) (int, error) // bytes of the database
	close func() error
}

// open returns an empty store: memory, or an etcd that is started for it.
func open(ctx context.Context, name string) (*opened, error) {
	switch name {
	case "memory":
		return &opened{store.NewMemory(), func(context.Context) (int, error) { return 0, nil }, func() error { return nil }}, nil
	case "etcd":
		return openEtcd(ctx)
	}
	return nil, fmt.Errorf("no store %q; there are memory and etcd", name)
}

// openEtcd starts one member that keeps 10,000 revisions. It does not sync: what is counted does not depend on that.
func openEtcd(ctx context.Context) (*opened, error) {
	server, err := servers.StartEtcd(ctx, servers.EtcdOptions{NoSync: true, Flags: []string{
		"--auto-compaction-mode=revision", "--auto-compaction-retention=10000", "--quota-backend-bytes=8589934592",
	}})
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	closeAll := func() error { return errors.Join(client.Close(), server.Close()) }
	s, err := etcdstore.Open(ctx, client, "/ipam/", etcdstore.Options{})
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	file := func(ctx context.Context) (int, error) {
		status, err := client.Status(ctx, server.Endpoints()[0])
		if err != nil {
			return 0, err
		}
		return int(status.DbSizeInUse), nil
	}
	return &opened{s, file, closeAll}, nil
}
