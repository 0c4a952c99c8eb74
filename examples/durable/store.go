package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// location is what a flag says of a store.
type location struct {
	kind      string // memory, bolt or etcd
	path      string // of the file
	endpoints []string
	prefix    string // of the keys, with a slash at its end
	text      string // as it was written
}

// parseLocation reads the value of a flag.
func parseLocation(flag, text string) (*location, error) {
	fault := func(why string) (*location, error) {
		return nil, fmt.Errorf("%s %s: %s", flag, text, why)
	}
	l := &location{text: text}
	var rest string
	var ok bool
	if l.kind, rest, ok = strings.Cut(text, "://"); !ok && text != "memory" {
		return fault("memory, bolt:///path/of/file or etcd://host:port/prefix is needed")
	}
	switch l.kind {
	case "memory":
		if rest != "" {
			return fault("memory has no address")
		}
	case "bolt":
		if l.path = rest; rest == "" {
			return fault("the path of a file is missing, as in bolt:///var/lib/durable.db")
		}
	case "etcd":
		hosts, prefix, _ := strings.Cut(rest, "/")
		if hosts == "" {
			return fault("a host is missing, as in etcd://10.0.0.1:2379/durable")
		}
		if prefix = strings.Trim(prefix, "/"); prefix == "" {
			return fault("the prefix of the keys is missing, as in etcd://10.0.0.1:2379/durable")
		}
		l.endpoints, l.prefix = strings.Split(hosts, ","), "/"+prefix+"/"
	default:
		return fault("no such kind of store: memory, bolt and etcd there are")
	}
	return l, nil
}

// again says what happens when the program is started again.
func (l *location) again() string {
	if l.kind == "memory" {
		return "nothing is kept in memory: it will begin anew"
	}
	return "start it again, and it goes on"
}

// open opens the store. What is not there is made, but for one that must exist. The function that it
// returns closes it.
func (l *location) open(ctx context.Context, mustExist bool) (store.Store, func() error, error) {
	switch l.kind {
	case "bolt":
		s, err := boltstore.Open(ctx, l.path, boltstore.Options{NoCreate: mustExist})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	case "etcd":
		return l.openEtcd(ctx, mustExist)
	default:
		return store.NewMemory(), func() error { return nil }, nil
	}
}

// openEtcd connects to the cluster and opens the store there.
func (l *location) openEtcd(ctx context.Context, mustExist bool) (store.Store, func() error, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   l.endpoints,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, nil, err
	}
	s, err := etcdstore.Open(ctx, client, l.prefix, etcdstore.Options{NoCreate: mustExist})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return s, client.Close, nil
}

// copyStore copies a store to another one.
func copyStore(ctx context.Context, cfg *config, stdout io.Writer) (err error) {
	from, closeFrom, err := cfg.store.open(ctx, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeFrom()) }()
	to, closeTo, err := cfg.copyTo.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTo()) }()
	report, err := store.Copy(ctx, to, from)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s, copied from %s to %s\n", wording.Count(report.Records, "record"), cfg.store.text, cfg.copyTo.text)
	return err
}
