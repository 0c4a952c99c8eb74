package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// outcomes are answers to a commit and what is to be made of them.
var outcomes = []struct {
	err            error
	unknown, retry bool
	is             error
}{
	{rpctypes.ErrGRPCNoSpace, true, false, rpctypes.ErrNoSpace},
	{rpctypes.ErrGRPCCorrupt, true, false, rpctypes.ErrCorrupt},
	{rpctypes.ErrGRPCLeaderChanged, true, true, rpctypes.ErrLeaderChanged},
	{rpctypes.ErrGRPCStopped, true, true, rpctypes.ErrStopped},
	{rpctypes.ErrGRPCTimeout, true, true, rpctypes.ErrTimeout},
	{rpctypes.ErrGRPCTimeoutDueToLeaderFail, true, true, rpctypes.ErrTimeoutDueToLeaderFail},
	{rpctypes.ErrGRPCTimeoutDueToConnectionLost, true, true, rpctypes.ErrTimeoutDueToConnectionLost},
	{rpctypes.ErrGRPCUnhealthy, true, true, rpctypes.ErrUnhealthy},
	{rpctypes.ErrGRPCCanceled, true, true, nil},
	{rpctypes.ErrGRPCDeadlineExceeded, true, true, context.DeadlineExceeded},
	{status.Error(codes.Canceled, "somebody on the way"), true, true, nil},
	{status.Error(codes.DeadlineExceeded, "somebody on the way"), true, true, context.DeadlineExceeded},
	{status.Error(codes.Unavailable, "error reading from server: EOF"), true, true, nil},
	{status.Error(codes.Internal, "stream terminated"), true, true, nil},
	{status.Error(codes.Unknown, "raft proposal dropped"), true, true, nil},
	{status.Error(codes.Unknown, "whatever"), true, false, nil},
	{status.Error(codes.ResourceExhausted, "whatever"), true, false, nil},

	{rpctypes.ErrGRPCNoLeader, false, true, rpctypes.ErrNoLeader},
	{rpctypes.ErrGRPCRequestTooManyRequests, false, true, rpctypes.ErrTooManyRequests},
	{rpctypes.ErrGRPCRequestTooLarge, false, false, ipalloc.ErrLimit},
	{rpctypes.ErrGRPCTooManyOps, false, false, ipalloc.ErrLimit},
	{rpctypes.ErrGRPCPermissionDenied, false, false, rpctypes.ErrPermissionDenied},
	{rpctypes.ErrGRPCAuthFailed, false, false, rpctypes.ErrAuthFailed},
	{rpctypes.ErrGRPCUserNotFound, false, false, rpctypes.ErrUserNotFound},
	{rpctypes.ErrGRPCNotCapable, false, false, rpctypes.ErrNotCapable},
	{rpctypes.ErrGRPCNotSupportedForLearner, false, false, nil},
	{status.Error(codes.Unimplemented, "whatever"), false, false, nil},
}

// TestOutcomes has a commit answered with every error there is, made where it can be made. Whatever is not said to be unknown
// left no trace, and no commit is ever made twice.
func TestOutcomes(t *testing.T) {
	r, client := newRelay(t)
	s := openIn(t, client, newPrefix(), Options{})
	for i, tt := range outcomes {
		key := fmt.Sprint("k", i)
		r.set(func(_ context.Context, _ *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
			if tt.unknown {
				if _, err := pass(); err != nil {
					t.Error(err)
				}
			}
			return nil, tt.err
		})
		_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: key, Expect: 0}})
		var e *ipalloc.Error
		if !errors.As(err, &e) || e.Op != "commit" || errors.Is(err, ipalloc.ErrUnknownOutcome) != tt.unknown || store.Retryable(err) != tt.retry || errors.Is(err, ipalloc.ErrConflict) {
			t.Errorf("%v: %v (unknown %v, retryable %v), want unknown %v, retryable %v", tt.err, err, errors.Is(err, ipalloc.ErrUnknownOutcome), store.Retryable(err), tt.unknown, tt.retry)
		}
		if tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%v: %v is not %v", tt.err, err, tt.is)
		}
		sent := 1
		if errors.Is(err, rpctypes.ErrNoLeader) {
			sent = writeAttempts // to a member that has one
		}
		if n := r.count(); n != sent {
			t.Errorf("%v: sent %d times", tt.err, n)
		}
		r.set(nil)
		if recs, err := s.Get(limited(t), nil, key); err != nil || (recs[0].Rev != 0) != tt.unknown {
			t.Errorf("%v: %v, %v", tt.err, recs, err)
		}
	}
}

// TestCommitGoesToAnotherMember verifies that a commit that a member without leader refused is made by one that has one.
func TestCommitGoesToAnotherMember(t *testing.T) {
	r, client := newRelay(t)
	s := openIn(t, client, newPrefix(), Options{})
	r.set(func(ctx context.Context, _ *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
		if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md[rpctypes.MetadataRequireLeaderKey], []string{rpctypes.MetadataHasLeader}) {
			t.Errorf("a member without leader is not asked to say so: %v", md)
		}
		if r.count() < writeAttempts {
			return nil, rpctypes.ErrGRPCNoLeader
		}
		return pass()
	})
	if rev := mustCommit(t, s, "k", "v"); rev == 0 || r.count() != writeAttempts {
		t.Errorf("revision %d after %d calls", rev, r.count())
	}
}

// TestReadsAreRepeated verifies that what changes nothing is asked again where another answer may come, and only there.
func TestReadsAreRepeated(t *testing.T) {
	r, client := newRelay(t)
	s := openIn(t, client, newPrefix(), Options{})
	rev := mustCommit(t, s, "a", "1")
	calls := map[string]func() error{
		"get": func() error {
			_, err := s.Get(limited(t), nil, "a", "b")
			return err
		},
		"guards": func() error {
			_, err := s.Commit(limited(t), []store.Op{{Kind: store.Guard, Key: "a", Expect: rev}})
			return err
		},
		"list": func() error {
			_, _, err := s.List(limited(t), store.Range{})
			return err
		},
	}
	for name, call := range calls {
		failures := 3
		r.set(func(_ context.Context, _ *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
			if failures--; failures >= 0 {
				return nil, rpctypes.ErrGRPCLeaderChanged
			}
			return pass()
		})
		if err := call(); err != nil || r.count() != 4 {
			t.Errorf("%s: %v after %d calls", name, err, r.count())
		}
		r.set(func(context.Context, *pb.TxnRequest, func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
			return nil, rpctypes.ErrGRPCPermissionDenied
		})
		if err := call(); !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) || r.count() != 1 {
			t.Errorf("%s: %v after %d calls", name, err, r.count())
		}
	}
}

// TestNobodyListens verifies that a commit that could not be sent is known to have left no trace.
func TestNobodyListens(t *testing.T) {
	r, client := newRelay(t)
	s := openIn(t, client, newPrefix(), Options{})
	r.server.Stop()
	_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k"}})
	for i := 0; i < 100 && errors.Is(err, ipalloc.ErrUnknownOutcome); i++ { // the client may not have noticed yet
		_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k"}})
	}
	if c := (*store.Cause)(nil); !errors.As(err, &c) || code(c.Err) != codes.Unavailable || !store.Retryable(err) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("Commit: %v", err)
	}
	if _, err := s.Get(limited(t), nil, "k"); err == nil || !store.Retryable(err) {
		t.Errorf("Get: %v", err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	lost := connect(t, []string{address})
	if _, err := Open(limited(t), lost, newPrefix(), Options{}); err == nil || !store.Retryable(err) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("Open: %v", err)
	}
}

// TestMemberComesBack verifies that a commit, as a read, waits for a member that is started again.
func TestMemberComesBack(t *testing.T) {
	var refused atomic.Int32
	conns := make(chan net.Conn, 100)
	client := connect(t, sharedCluster(t).Endpoints(), func(c *clientv3.Config) {
		quick := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}}
		c.DialOptions = append(c.DialOptions, grpc.WithConnectParams(quick), grpc.WithContextDialer(
			func(ctx context.Context, address string) (net.Conn, error) {
				if refused.Add(-1) >= 0 {
					return nil, syscall.ECONNREFUSED
				}
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				if err == nil {
					conns <- conn
				}
				return conn, err
			}))
	})
	s := openIn(t, client, newPrefix(), Options{})
	for name, call := range map[string]func() error{
		"commit": func() error {
			_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Expect: store.AnyRevision}})
			return err
		},
		"get": func() error { _, err := s.Get(limited(t), nil, "k"); return err },
	} {
		refused.Store(5)
		for range len(conns) {
			_ = (<-conns).Close()
		}
		client.ActiveConnection().WaitForStateChange(limited(t), connectivity.Ready)
		if err := call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestClosedClient verifies that a client that the caller has closed is no reason to try again.
func TestClosedClient(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	s := openIn(t, client, newPrefix(), Options{})
	_ = client.Close()
	_, commitErr := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k"}})
	_, getErr := s.Get(limited(t), nil, "k")
	var watchErr error
	for _, watchErr = range s.Watch(limited(t), 0, "") {
	}
	for what, err := range map[string]error{"Commit": commitErr, "Get": getErr, "Watch": watchErr} {
		if err == nil || store.Retryable(err) || errors.Is(err, ipalloc.ErrUnknownOutcome) || limited(t).Err() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDeadlines verifies that a context that ends before a commit is sent leaves no trace, and that one that ends
// before the answer leaves the outcome unknown: the commit is made all the same.
func TestDeadlines(t *testing.T) {
	r, client := newRelay(t)
	s := openIn(t, client, newPrefix(), Options{})
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k"}}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ipalloc.ErrUnknownOutcome) || !store.Retryable(err) {
		t.Errorf("before: %v", err)
	}
	made := make(chan struct{})
	r.set(func(ctx context.Context, _ *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
		<-ctx.Done() // the answer comes too late, whatever the deadline
		defer close(made)
		return pass()
	})
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k", Expect: 0}})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ipalloc.ErrUnknownOutcome) || !store.Retryable(err) {
		t.Errorf("during: %v", err)
	}
	<-made
	r.set(nil)
	if recs, err := s.Get(limited(t), nil, "k"); err != nil || recs[0].Rev == 0 {
		t.Errorf("after: %v, %v", recs, err)
	}

	ctx, stop := context.WithCancel(context.Background())
	r.set(func(context.Context, *pb.TxnRequest, func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
		stop()
		return nil, rpctypes.ErrGRPCTimeout
	})
	if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "k"}}); !errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Errorf("cancelled: %v", err)
	}
}

// A watch whose question for the past of the cluster gets no answer ends with its context.
func TestWatchAsksNoLongerThanItsContext(t *testing.T) {
	r, client := newRelay(t)
	s := open(t)
	s.kv = pb.NewKVClient(client.ActiveConnection())
	ctx, cancel := context.WithCancel(t.Context())
	r.set(func(asked context.Context, _ *pb.TxnRequest, _ func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
		cancel()
		<-asked.Done()
		return nil, asked.Err()
	})
	ended := make(chan error, 1)
	go func() {
		for _, err := range s.Watch(ctx, 0, "a") {
			ended <- err
		}
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) || store.Retryable(err) {
			t.Error(err)
		}
	case <-limited(t).Done():
		t.Error("the watch goes on")
	}
}

// assign asks an engine for an address with a request key.
func assign(ctx context.Context, e *ipset.Engine, handle string) (netip.Addr, error) {
	got, err := e.AutoAssign(ctx, alloc.AssignArgs{
		Owner: alloc.HostOwner("h"), Num4: 1, Use: alloc.Workload, Handle: handle, Request: "request of " + handle,
	})
	if err != nil {
		return netip.Addr{}, err
	}
	return got.V4[0].Address, nil
}

// TestLostAnswer loses the answer to every kind of commit that an engine makes, in every way it can be lost: repeated with
// its request key, the call gives the first answer, and nothing leaks.
func TestLostAnswer(t *testing.T) {
	r, client := newRelay(t)
	for _, lost := range []error{rpctypes.ErrGRPCTimeoutDueToLeaderFail, rpctypes.ErrGRPCCanceled, rpctypes.ErrGRPCNoSpace, context.DeadlineExceeded} {
		s := openIn(t, client, newPrefix(), Options{})
		e, err := ipset.New(s, ipset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.AddPool(limited(t), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28}); err != nil {
			t.Fatal(err)
		}
		held := make(map[netip.Addr]string)
		for i := range 20 { // some claim a block, most do not
			ctx, cancel := context.WithCancel(limited(t))
			var first netip.Addr
			r.set(func(_ context.Context, req *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
				resp, err := pass()
				if err != nil || len(req.Success) == 0 || req.Success[0].GetRequestRange() != nil {
					return resp, err
				}
				if errors.Is(lost, context.DeadlineExceeded) {
					cancel()
				}
				return nil, lost
			})
			handle := fmt.Sprint("p", i)
			if _, err := assign(ctx, e, handle); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatalf("%v: the first call: %v", lost, err)
			}
			cancel()
			r.set(nil)
			for range 2 {
				a, err := assign(limited(t), e, handle)
				if err != nil || first.IsValid() && a != first {
					t.Fatalf("%v: repeated: %v, %v; it was %v", lost, a, err, first)
				}
				if other, taken := held[a]; taken && other != handle {
					t.Fatalf("%v: %v given to %s and to %s", lost, a, other, handle)
				}
				first, held[a] = a, handle
			}
		}
		wantHeld(t, e, held)
	}
}

// wantHeld verifies that the store is consistent and holds exactly what was given.
func wantHeld(t *testing.T, e *ipset.Engine, held map[netip.Addr]string) {
	t.Helper()
	rep, err := e.Operator().Check(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		t.Error(p)
	}
	n := 0
	for al, err := range e.Allocations(limited(t), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; held[al.Address] != al.Handle {
			t.Errorf("%s is held by %q, given to %q", al.Address, al.Handle, held[al.Address])
		}
	}
	if n != len(held) {
		t.Errorf("%d addresses are held, %d were given", n, len(held))
	}
}

// TestAnotherClusterAnswers verifies that an answer from elsewhere, or from an earlier state, is not taken for one.
func TestAnotherClusterAnswers(t *testing.T) {
	r, client := newRelay(t)
	s := openIn(t, client, newPrefix(), Options{})
	rev := mustCommit(t, s, "k", "v")
	for want, change := range map[error]func(*pb.ResponseHeader){
		ipalloc.ErrMismatch: func(h *pb.ResponseHeader) { h.ClusterId++ },
		ipalloc.ErrReplaced: func(h *pb.ResponseHeader) { h.Revision = int64(rev) - 1 },
	} {
		r.set(func(_ context.Context, _ *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error) {
			resp, err := pass()
			if err == nil {
				change(resp.Header)
			}
			return resp, err
		})
		if _, err := s.Get(limited(t), nil, "k", "l"); !errors.Is(err, want) || store.Retryable(err) {
			t.Errorf("Get: %v, want %v", err, want)
		}
		if _, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Expect: store.AnyRevision}}); !errors.Is(err, want) || !errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
			t.Errorf("Commit: %v, want %v", err, want)
		}
		if _, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Expect: 0}}); !errors.Is(err, want) || errors.Is(err, ipalloc.ErrUnknownOutcome) || errors.Is(err, ipalloc.ErrConflict) {
			t.Errorf("Commit in conflict: %v, want %v", err, want)
		}
	}
}

// TestSmallSends verifies that what the client itself will not send is known not to be sent.
func TestSmallSends(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints(), func(c *clientv3.Config) {
		c.MaxCallSendMsgSize = 10 << 10
		c.DialOptions = append(c.DialOptions, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(10<<10)))
	})
	s := openIn(t, client, newPrefix(), Options{})
	_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Value: string(make([]byte, 20<<10))}})
	if !errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Errorf("Commit: %v", err)
	}
}
