package etcdstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// proxy passes connections on to a member and can break them.
type proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	closed bool // new connections are closed at once
	open   map[net.Conn]struct{}
	wg     sync.WaitGroup
}

// newProxy returns a proxy for a URL of a member.
func newProxy(t *testing.T, endpoint string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, target, _ := strings.Cut(endpoint, "://")
	p := &proxy{listener: listener, target: target, open: make(map[net.Conn]struct{})}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) endpoint() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = struct{}{}, struct{}{}
		if p.closed {
			_ = client.Close()
			_ = server.Close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(server, client) })
		p.wg.Go(func() { p.copy(client, server) })
	}
}

// copy copies until either end is closed, and closes both.
func (p *proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from) // ends when it is cut
	_ = to.Close()
	_ = from.Close()
	p.mu.Lock()
	delete(p.open, from)
	p.mu.Unlock()
}

// cut breaks all connections, and with stay those that come, until it is called without.
func (p *proxy) cut(stay bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = stay
	for c := range p.open {
		_ = c.Close()
	}
}

// atOnce has a client connect again without the second that it would wait.
var atOnce = grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: guard})

// tap sees every message that the streams of a client receive, and counts its calls that are no streams.
type tap struct {
	mu       sync.Mutex
	calls    []string
	messages int
	each     func(*pb.WatchResponse)
}

// into has the tap see what a client does.
func (p *tap) into(c *clientv3.Config) {
	c.DialOptions = append(c.DialOptions, atOnce, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		p.mu.Lock()
		p.calls = append(p.calls, describe(req))
		p.mu.Unlock()
		return invoke(ctx, method, req, reply, cc, opts...)
	}), grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return &tapped{s, p}, err
	}))
}

// describe says what a request asks for.
func describe(req any) string {
	switch r := req.(type) {
	case *pb.RangeRequest:
		if len(r.RangeEnd) > 0 {
			return "list"
		}
		return "get"
	case *pb.TxnRequest:
		what := "get"
		for _, op := range append(r.Success, r.Failure...) {
			if rr := op.GetRequestRange(); rr != nil && len(rr.RangeEnd) > 0 && !strings.HasSuffix(string(rr.Key), "/"+pastName) {
				return "list"
			}
			if op.GetRequestRange() == nil {
				what = "commit"
			}
		}
		return what
	case *pb.StatusRequest:
		return "release"
	}
	return fmt.Sprintf("%T", req)
}

type tapped struct {
	grpc.ClientStream
	tap *tap
}

func (s *tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*pb.WatchResponse); ok && err == nil {
		s.tap.mu.Lock()
		s.tap.messages++
		each := s.tap.each
		s.tap.mu.Unlock()
		if each != nil {
			each(resp)
		}
	}
	return err
}

// reset forgets what was counted.
func (p *tap) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls, p.messages = nil, 0
}

// counted returns the calls and the number of messages since reset.
func (p *tap) counted() ([]string, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls, p.messages
}
