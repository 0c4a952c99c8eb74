package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	"modernc.org/sqlite" // and the driver of that name
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/cmd/internal/storeurl/access"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
)

// mode says what a command does with the store.
type mode int

const (
	reading mode = iota // of a bbolt file, works on a copy
	writing
	making // writing; the store need not exist
)

// source is an open store.
type source struct {
	store.Store
	location *storeurl.Location
	bolt     *boltstore.Store // of a bbolt file
	closers  []func() error

	following bool // it is opened to be watched
}

func (s *source) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// open opens the store that --store names, or the space of it that --space names.
func (a *app) open(ctx context.Context, m mode) (*source, error) {
	if a.store == "" {
		a.store = a.getenv("IPAMCTL_STORE")
	}
	if a.store == "" {
		return nil, fail(exitUsage, "no store: name one with --store or the variable IPAMCTL_STORE, such as bolt:///var/lib/ipam.db; ipamctl --help lists the kinds")
	}
	return a.openStore(ctx, "--store", a.store, m)
}

// openStore opens a store by its name, which flag gave.
func (a *app) openStore(ctx context.Context, flag, text string, m mode) (*source, error) {
	l, err := storeurl.Parse(flag, text, "bolt", "unix", "etcd", "sqlite", "postgres", "kube")
	if err != nil {
		return nil, fail(exitUsage, "%v", err)
	}
	if a.passwordFile != "" && flag == "--store" && (l.Kind == "etcd" || l.Kind == "postgres") {
		if l.Params == nil {
			l.Params = url.Values{}
		}
		l.Params.Set(storeurl.PasswordFile, a.passwordFile)
	}
	s := &source{location: l, following: a.following}
	switch {
	case l.Kind == "etcd":
		err = s.openEtcd(ctx, a.getenv, m, a.adopting && m == writing)
	case l.Kind == "sqlite" || l.Kind == "postgres":
		err = s.openSQL(ctx, m, a.adopting && m == writing)
	case l.Kind == "kube":
		err = s.openKube(ctx, m)
	case l.Kind == "unix":
		err = s.openSocket(ctx)
	case m == reading:
		err = a.openBoltView(ctx, s)
	default:
		err = s.openBolt(ctx, l.Path, boltstore.Options{NoCreate: m != making, LockWait: time.Second})
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%v does not answer: %w", l, err)
	}
	if err == nil && !a.copying {
		err = store.Complete(ctx, s.Store)
	}
	if err == nil {
		s.Store, err = a.within(ctx, s.Store, m)
	}
	if err == nil && !a.copying {
		err = store.Complete(ctx, s.Store) // a space has a mark of its own
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *source) openBolt(ctx context.Context, path string, o boltstore.Options) error {
	db, err := boltstore.Open(ctx, path, o)
	if err != nil {
		return err
	}
	s.Store, s.bolt = db, db
	s.closers = append(s.closers, db.Close)
	return nil
}

// openSocket opens the store that a process has open and serves.
func (s *source) openSocket(ctx context.Context) error {
	db, err := remote.Open(ctx, s.location.Path)
	if err != nil {
		return err
	}
	s.Store = db
	s.closers = append(s.closers, db.Close)
	return nil
}

// openBoltView opens a consistent copy of a bbolt file, which is made beside the process that has it. The file is not locked, so
// a command that looks keeps no service from starting.
func (a *app) openBoltView(ctx context.Context, s *source) error {
	path := s.location.Path
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return s.openBolt(ctx, path, boltstore.Options{ReadOnly: true}) // says what it is
	}
	dir, err := os.MkdirTemp("", "ipamctl")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(dir) })
	name := dir + "/copy.db"
	a.copies = append(a.copies, name, path)
	if err := boltstore.Snapshot(ctx, path, name); err != nil {
		if of := new(fs.PathError); errors.As(err, &of) && of.Path == name {
			return fail(exitUnavailable, "copy %s into %s, to read it: %w; TMPDIR may name another directory", path, filepath.Dir(dir), of.Err)
		}
		return err
	}
	return s.openBolt(ctx, name, boltstore.Options{ReadOnly: true})
}

// wait waits, or returns the error of ctx if that ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// patience is how long an etcd may take to answer the first call.
const patience = 10 * time.Second

func (s *source) openEtcd(ctx context.Context, getenv func(string) string, m mode, adopt bool) error {
	let, err := access.OfEtcd(s.location, getenv)
	if err != nil {
		return fail(exitUsage, "%w", err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: s.location.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: let.TLS, Username: let.User, Password: let.Password})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, client.Close)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := etcdstore.Open(ctx, client, s.location.Prefix, etcdstore.Options{NoCreate: m != making, Adopt: adopt, OldServers: !s.following})
	if err != nil {
		return err
	}
	s.Store = db
	return nil
}

// openSQL opens a store in a SQLite file, which Open would make if it did not exist, or in a PostgreSQL.
func (s *source) openSQL(ctx context.Context, m mode, adopt bool) error {
	driver := "pgx"
	dsn, err := access.Postgres(s.location)
	if s.location.Kind == "sqlite" {
		if _, err := os.Stat(s.location.Path); err != nil && (m != making || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
		option := "_txlock=immediate"
		if m == reading {
			option = "mode=ro"
		}
		driver, dsn = "sqlite", storeurl.SQLite(s.location.Path, option)
	}
	if err != nil {
		return fail(exitUsage, "%w", err)
	}
	err = s.openDatabase(ctx, driver, dsn, sqlstore.Options{NoCreate: m != making, Adopt: adopt})
	lite := new(sqlite.Error)
	if m == reading && errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_CANTOPEN {
		for _, beside := range []string{"-wal", "-shm"} { // the last commits may be in them alone
			f, oerr := os.Open(s.location.Path + beside)
			if f.Close(); errors.Is(oerr, os.ErrPermission) {
				return fail(exitRefused, "%s: another user's process has it open, and %w: run this command as that user", s.location.Path, oerr)
			}
		}
	}
	if m == reading && errors.As(err, &lite) && lite.Code() == sqlite3.SQLITE_READONLY_DIRECTORY {
		dsn, err = s.copySQLite()
		if err == nil {
			err = s.openDatabase(ctx, driver, dsn, sqlstore.Options{NoCreate: true})
		}
	}
	return err
}

func (s *source) openDatabase(ctx context.Context, driver, dsn string, o sqlstore.Options) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, db.Close)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	records, err := sqlstore.Open(ctx, db, o)
	if err != nil {
		return err
	}
	s.Store = records
	return nil
}

// copySQLite copies a file in whose directory SQLite may not make the files that it needs beside it, and which no process has open:
// then it is complete without them.
func (s *source) copySQLite() (dsn string, err error) {
	dir, err := os.MkdirTemp("", "ipamctl")
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(dir) })
	before, err := os.Stat(s.location.Path)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(s.location.Path)
	if err == nil {
		err = os.WriteFile(dir+"/copy.sqlite", text, 0o600)
	}
	if err != nil {
		return "", err
	}
	after, err := os.Stat(s.location.Path)
	if err == nil && (exists(s.location.Path+"-wal") || after.ModTime() != before.ModTime() || after.Size() != before.Size()) {
		err = fail(exitUnavailable, "%s: another process has opened it meanwhile: repeat this command", s.location.Path)
	}
	return storeurl.SQLite(dir+"/copy.sqlite", "mode=rw"), err
}

// openKube opens a store in the cluster that the kubeconfig names, or in that of the pod.
func (s *source) openKube(ctx context.Context, m mode) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return fail(exitUnavailable, "no cluster: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := kubestore.Open(ctx, config, s.location.Namespace, s.location.Name, kubestore.Options{NoCreate: m != making})
	if err != nil {
		return err
	}
	s.Store = db
	return nil
}

// engine returns an engine on a store.
func (a *app) engine(db store.Store) (*ipset.Engine, error) {
	return ipset.New(db, ipset.Options{Now: a.now, Labels: a.labelsOf()})
}

// read runs f on an engine that only reads.
func (a *app) read(ctx context.Context, f func(ctx context.Context, e *ipset.Engine) error) error {
	return a.readStore(ctx, func(ctx context.Context, e *ipset.Engine, _ *source) error { return f(ctx, e) })
}

// readStore runs f on a store that it only reads, and on its engine.
func (a *app) readStore(ctx context.Context, f func(ctx context.Context, e *ipset.Engine, db *source) error) (err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	db, err := a.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	e, err := a.engine(db)
	if err != nil {
		return err
	}
	return f(ctx, e, db)
}

// limit applies --timeout.
func (a *app) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout > 0 {
		return context.WithTimeout(ctx, a.timeout)
	}
	return context.WithCancel(ctx)
}
