package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/torture/history"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// workerEnv holds the orders of a worker process.
const workerEnv = "IPALLOC_TORTURE_ETCD_WORKER"

// prefix is where the store is.
const prefix = "/torture/"

// orders are for one worker process.
type orders struct {
	Endpoints []string
	Name      string
	Writers   int
	Seed      uint64
	// Once, if not empty, is the one handle to assign an address to, for the host Host.
	Once, Host string
}

// result is what a worker process reports.
type result struct {
	Steps   []history.Step
	Errors  map[string]int // every error that a call returned, by what it says
	Unknown int            // how many left the outcome unknown
	Wrong   []string       // errors that do not say what they must
	Err     string
	Once    netip.Addr
}

// isWorker reports whether this process is to be a worker.
func isWorker() bool { return os.Getenv(workerEnv) != "" }

// command returns the command of a worker: this program again.
func command(o orders) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// work is a worker process: it works until its input ends, and reports to its output.
func work() int {
	var o orders
	var r result
	err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &o)
	if err == nil {
		err = o.run(&r)
	}
	if err != nil {
		r.Err = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// connect returns a client as someone would configure it who wants to notice cut connections.
func connect(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: 2 * time.Second, PermitWithoutStream: true,
	})
}

// openEngine opens the store and makes an engine on it; it tries for as long as that can help.
func openEngine(ctx context.Context, client *clientv3.Client) (*ipset.Engine, *etcdstore.Store, error) {
	for {
		s, err := etcdstore.Open(ctx, client, prefix, etcdstore.Options{})
		if err == nil {
			e, err := ipset.New(s, ipset.Options{Retry: ipset.Retry{Attempts: 50}})
			return e, s, err
		}
		if !store.Retryable(err) {
			return nil, nil, err
		}
	}
}

func (o orders) run(r *result) error {
	client, err := connect(o.Endpoints)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx := context.Background()
	e, _, err := openEngine(ctx, client)
	if err != nil {
		return err
	}
	if o.Once != "" {
		got, err := e.AutoAssign(ctx, ipset.AssignArgs{
			Owner: alloc.HostOwner(o.Host), Num4: 1, Use: alloc.Workload, Claim: alloc.Claim{Handle: o.Once}, Request: "r" + o.Once,
		})
		if err == nil {
			r.Once = got.V4[0].Address
		}
		return err
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	seen := &seen{result: r}
	r.Errors = make(map[string]int)
	r.Steps, err = history.Run(ctx, history.Config{
		Engines: []*ipset.Engine{e}, Pool: pool, Writers: o.Writers, Stop: stop, Name: o.Name, Seed: o.Seed, Keep: 6,
		Limit: 4 * time.Second, Retry: seen.retry, Clock: func() int64 { return time.Now().UnixNano() },
	})
	return err
}

// seen counts errors.
type seen struct {
	mu     sync.Mutex
	result *result
}

// pause keeps a writer that fails at once from doing nothing else.
const pause = 10 * time.Millisecond

// retry notes an error and says whether to try again, which is for the error to say.
func (s *seen) retry(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cause, ofStore := err, false
	for e := (*ipalloc.Error)(nil); errors.As(cause, &e) && !ofStore; {
		cause, ofStore = e.Err, e.Package == "etcdstore"
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		cause = context.DeadlineExceeded // wherever it ended
	case errors.Is(err, ipalloc.ErrConflict):
		cause = ipalloc.ErrConflict
	case !ofStore:
		s.result.Wrong = append(s.result.Wrong, err.Error())
	}
	what := fmt.Sprintf("%.70s", cause.Error())
	if errors.Is(err, ipalloc.ErrUnknownOutcome) {
		s.result.Unknown++
		what = "unknown outcome: " + what
	}
	s.result.Errors[what]++
	again := store.Retryable(err)
	if again {
		time.Sleep(pause)
	}
	return again
}
