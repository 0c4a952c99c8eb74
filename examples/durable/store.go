package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/internal/storeurl"
	"github.com/ipalloc/ipalloc/internal/storeurl/access"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
	"github.com/ipalloc/ipalloc/ipset/store"
)

// again says what happens when the program is started again.
func again(l *storeurl.Location) string {
	if l.Kind == "memory" {
		return "nothing is kept in memory: it will begin anew"
	}
	return "start it again, and it goes on"
}

// open opens the store. What is not there is made, but for one that must exist. The function that it
// returns closes it.
func open(ctx context.Context, l *storeurl.Location, mustExist bool) (store.Store, func() error, error) {
	switch l.Kind {
	case "bolt":
		s, err := boltstore.Open(ctx, l.Path, boltstore.Options{NoCreate: mustExist})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	case "sqlite", "postgres":
		return openSQL(ctx, l, mustExist)
	case "etcd":
		return openEtcd(ctx, l, mustExist)
	case "kube":
		return openKube(ctx, l, mustExist)
	default:
		return store.NewMemory(), func() error { return nil }, nil
	}
}

// openEtcd connects to the cluster and opens the store there.
func openEtcd(ctx context.Context, l *storeurl.Location, mustExist bool) (store.Store, func() error, error) {
	let, err := access.OfEtcd(l, os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		TLS:         let.TLS,
		Username:    let.User,
		Password:    let.Password,
		Endpoints:   l.Endpoints,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, nil, err
	}
	s, err := etcdstore.Open(ctx, client, l.Prefix, etcdstore.Options{NoCreate: mustExist})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return s, client.Close, nil
}

// openSQL opens the store in a SQLite file or in a PostgreSQL.
func openSQL(ctx context.Context, l *storeurl.Location, mustExist bool) (store.Store, func() error, error) {
	driver := "pgx"
	name, err := access.Postgres(l)
	if err != nil {
		return nil, nil, err
	}
	if l.Kind == "sqlite" {
		mode := "rwc" // read, write and create
		if mustExist {
			mode = "rw"
		}
		driver, name = "sqlite", storeurl.SQLite(l.Path, "mode="+mode)
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{NoCreate: mustExist})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return s, db.Close, nil
}

// openKube opens the store in the cluster that the kubeconfig names, or in that of the pod.
func openKube(ctx context.Context, l *storeurl.Location, mustExist bool) (store.Store, func() error, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, nil, err
	}
	s, err := kubestore.Open(ctx, config, l.Namespace, l.Name, kubestore.Options{NoCreate: mustExist})
	if err != nil {
		return nil, nil, err
	}
	return s, func() error { return nil }, nil
}

// copyStore copies a store to another one.
func copyStore(ctx context.Context, cfg *config, stdout io.Writer) (err error) {
	from, closeFrom, err := open(ctx, cfg.store, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeFrom()) }()
	to, closeTo, err := open(ctx, cfg.copyTo, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTo()) }()
	report, err := store.Copy(ctx, to, from)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s, copied from %s to %s\n", wording.Count(report.Records, "record"), cfg.store, cfg.copyTo)
	return err
}
