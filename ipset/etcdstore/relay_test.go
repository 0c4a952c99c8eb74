package etcdstore

import (
	"context"
	"net"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// relay passes calls on to a real member and lets a test come between: it stands for a member that fails before or
// after it has done its work, which a real one cannot be told to do at a chosen moment.
type relay struct {
	pb.UnimplementedKVServer
	to     pb.KVClient
	server *grpc.Server

	mu   sync.Mutex
	txns int
	hook func(ctx context.Context, req *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error)
}

// newRelay returns a relay to the shared member, and a client that knows only it.
func newRelay(t *testing.T) (*relay, *clientv3.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: pb.NewKVClient(connect(t, sharedCluster(t).Endpoints()).ActiveConnection()), server: grpc.NewServer()}
	pb.RegisterKVServer(r.server, r)
	pb.RegisterMaintenanceServer(r.server, maintained{to: pb.NewMaintenanceClient(connect(t, sharedCluster(t).Endpoints()).ActiveConnection())})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.Serve(listener) // ends with Stop
	}()
	t.Cleanup(func() {
		r.server.Stop()
		<-served
	})
	return r, connect(t, []string{"http://" + listener.Addr().String()})
}

// set has hook asked about each transaction from now on, and counts them anew.
func (r *relay) set(hook func(ctx context.Context, req *pb.TxnRequest, pass func() (*pb.TxnResponse, error)) (*pb.TxnResponse, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook, r.txns = hook, 0
}

// count returns the number of transactions since set.
func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.txns
}

func (r *relay) Range(ctx context.Context, req *pb.RangeRequest) (*pb.RangeResponse, error) {
	return r.to.Range(ctx, req)
}

func (r *relay) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	r.mu.Lock()
	r.txns++
	hook := r.hook
	r.mu.Unlock()
	pass := func() (*pb.TxnResponse, error) { return r.to.Txn(context.WithoutCancel(ctx), req) }
	if hook == nil {
		return pass()
	}
	return hook(ctx, req, pass)
}

// maintained is the part of a relay that says which release the member has.
type maintained struct {
	pb.UnimplementedMaintenanceServer
	to pb.MaintenanceClient
}

func (m maintained) Status(ctx context.Context, req *pb.StatusRequest) (*pb.StatusResponse, error) {
	return m.to.Status(ctx, req)
}
