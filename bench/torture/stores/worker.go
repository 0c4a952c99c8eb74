package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	_ "modernc.org/sqlite"

	"github.com/ipalloc/ipalloc/bench/torture/oracle"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
	"github.com/ipalloc/ipalloc/ipset/store"
)

// workerEnv tells a process of this program that it is a worker: the store, its place, a name, a seed and the number of callers,
// separated by tabs.
const workerEnv = "TORTURE_STORES_WORKER"

// openers open the stores at a place.
var openers = map[string]func(ctx context.Context, place string) (store.Store, error){
	"bolt": func(ctx context.Context, place string) (store.Store, error) {
		return boltstore.Open(ctx, place, boltstore.Options{})
	},
	"sqlite":   func(ctx context.Context, place string) (store.Store, error) { return openSQL(ctx, "sqlite", place) },
	"postgres": func(ctx context.Context, place string) (store.Store, error) { return openSQL(ctx, "pgx", place) },
	"etcd": func(ctx context.Context, place string) (store.Store, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(place, ","), Logger: zap.NewNop(),
			DialKeepAliveTime: time.Second, DialKeepAliveTimeout: 2 * time.Second, PermitWithoutStream: true})
		if err != nil {
			return nil, err
		}
		return etcdstore.Open(ctx, client, "/torture/", etcdstore.Options{})
	},
	"kube": func(ctx context.Context, place string) (store.Store, error) {
		url, token, _ := strings.Cut(place, " ")
		config := &rest.Config{Host: url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			Impersonate: rest.ImpersonationConfig{UserName: kubeUser}}
		return kubestore.Open(ctx, config, "default", "torture", kubestore.Options{Slots: 8})
	},
}

func openSQL(ctx context.Context, driver, dsn string) (store.Store, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, db, sqlstore.Options{})
}

// open opens a store; it tries for as long as that can help.
func open(ctx context.Context, name, place string) (store.Store, error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s, err := openers[name](ctx, place)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return s, err
		}
	}
}

// workerMain works until its standard input ends, and reports whether the environment asked for that.
func workerMain() bool {
	words := strings.Split(os.Getenv(workerEnv), "\t")
	if len(words) != 5 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent, or at its wish
		cancel()
	}()
	seed, _ := strconv.ParseUint(words[3], 10, 64)
	callers, _ := strconv.Atoi(words[4])
	s, err := open(ctx, words[0], words[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return true
	}
	w := &oracle.Worker{Store: s, Name: words[2], Callers: callers, Seed: seed, Log: os.Stdout}
	w.Run(ctx)
	return true
}
