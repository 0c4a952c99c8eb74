package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/torture/history"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
)

// moment is when a writer is killed.
type moment string

const (
	before moment = "before its commit is made"
	during moment = "while its commit is made"
	unheld moment = "after its commit, before it is told"
	after  moment = "after it is told"
)

// gate passes the calls of one writer on to a member, and kills the writer at a moment of its first commit.
type gate struct {
	pb.UnimplementedKVServer
	to pb.KVClient

	mu   sync.Mutex
	when moment
	kill func()
	made chan error // what became of the commit that was passed on
}

func (g *gate) Range(ctx context.Context, req *pb.RangeRequest) (*pb.RangeResponse, error) {
	return g.to.Range(ctx, req)
}

func (g *gate) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pass := func() (*pb.TxnResponse, error) { return g.to.Txn(context.WithoutCancel(ctx), req) }
	writes := len(req.Success) > 0 && req.Success[0].GetRequestRange() == nil
	if !writes || g.kill == nil {
		return pass()
	}
	kill := g.kill
	g.kill = nil
	switch g.when {
	case before:
		kill()
		g.made <- nil
		return nil, context.Canceled
	case during:
		go func() {
			_, err := pass()
			g.made <- err
		}()
		kill()
		return nil, context.Canceled
	case unheld:
		resp, err := pass()
		g.made <- err
		kill()
		return resp, err
	}
	resp, err := pass()
	g.made <- err
	return resp, err
}

// killed kills writers around their one commit, and has others repeat what they were asked for.
func killed(ctx context.Context, c config, say func(string, ...any)) error {
	ec, err := servers.StartEtcd(ctx, servers.EtcdOptions{NoSync: !c.Sync})
	if err != nil {
		return err
	}
	defer func() { _ = ec.Close() }()
	client, err := connect(ec.Endpoints())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	e, s, err := openEngine(ctx, client)
	if err != nil {
		return err
	}
	if err := e.AddPool(ctx, ipset.Pool{Name: "p", Prefix: pool, BlockBits: 28}); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := &gate{to: pb.NewKVClient(client.ActiveConnection())}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, g)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	defer server.Stop()

	held := make(map[netip.Addr]string)
	for _, when := range []moment{before, during, unheld, after} {
		made := 0
		for i := range c.Kills {
			o := orders{Once: fmt.Sprintf("%s, %d", when, i), Host: fmt.Sprint("host", i%7), Endpoints: []string{"http://" + listener.Addr().String()}}
			if err := g.run(o, when); err != nil {
				return fmt.Errorf("killed %s: %w", when, err)
			}
			fresh, err := ipset.New(s, ipset.Options{})
			if err != nil {
				return err
			}
			first, err := fresh.IPsByHandle(ctx, o.Once)
			if err != nil && !errors.Is(err, ipalloc.ErrNotHeld) {
				return err
			}
			made += len(first)
			o.Endpoints = ec.Endpoints()
			again, err := once(o)
			if err != nil {
				return fmt.Errorf("killed %s, repeated: %w", when, err)
			}
			if len(first) > 1 || len(first) == 1 && first[0].Address != again || len(first) == 1 && when == before || len(first) == 0 && (when == unheld || when == after) {
				return fmt.Errorf("killed %s: the store had %v, the repetition was given %s", when, first, again)
			}
			if other, taken := held[again]; taken {
				return fmt.Errorf("killed %s: %s given to %q and to %q", when, again, other, o.Once)
			}
			held[again] = o.Once
		}
		say("%d writers killed %s: %d commits were made, every repetition gave the first answer", c.Kills, when, made)
	}
	if err := history.Verify(ctx, e, held); err != nil {
		return err
	}
	say("%d addresses are held, none of them twice or by nobody", len(held))
	return nil
}

// run has a worker make its one commit through the gate, and returns when it is dead and the commit is made or never will be.
func (g *gate) run(o orders, when moment) error {
	cmd, err := command(o)
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	made := make(chan error, 1)
	g.mu.Lock()
	g.when, g.made, g.kill = when, made, func() { _ = cmd.Process.Kill() }
	err = cmd.Start()
	g.mu.Unlock()
	if err != nil {
		return err
	}
	var r result
	told := json.NewDecoder(out).Decode(&r)
	if err := <-made; err != nil {
		return err
	}
	_ = cmd.Process.Kill()
	err = cmd.Wait()
	if when == after && (told != nil || r.Err != "") {
		return fmt.Errorf("%w: %s", told, r.Err)
	}
	var exit *exec.ExitError
	if when != after && (told == nil || !errors.As(err, &exit)) {
		return fmt.Errorf("the writer survived: %w", err)
	}
	return nil
}

// once has a worker make its one commit.
func once(o orders) (netip.Addr, error) {
	cmd, err := command(o)
	if err != nil {
		return netip.Addr{}, err
	}
	text, err := cmd.Output()
	if err != nil {
		return netip.Addr{}, err
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return netip.Addr{}, err
	}
	if r.Err != "" {
		return netip.Addr{}, errors.New(r.Err)
	}
	return r.Once, nil
}
