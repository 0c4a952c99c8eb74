// Command cni-ipam-etcd is a CNI IPAM plugin whose nodes share their addresses through an etcd.
// README.md describes it.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/plugin"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
)

func main() { plugin.Main(open) }

// open connects to the cluster and opens the store there.
func open(ctx context.Context, r plugin.Remote) (*plugin.Session, error) {
	var secured *tls.Config
	var dial []grpc.DialOption
	if r.TLS != nil {
		if r.TLS.ServerName != "" { // gRPC replaces the name in the TLS configuration by the authority
			dial = append(dial, grpc.WithAuthority(r.TLS.ServerName))
		}
		info := transport.TLSInfo{TrustedCAFile: r.TLS.CA, CertFile: r.TLS.Cert, KeyFile: r.TLS.Key}
		var err error
		if secured, err = info.ClientConfig(); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: r.Endpoints, TLS: secured, Username: r.User, Password: r.Password,
		DialTimeout: 5 * time.Second, DialOptions: dial, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	s, err := etcdstore.Open(ctx, client, r.Prefix, etcdstore.Options{
		NoCreate: r.NoCreate, OldServers: true, // no call watches
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &plugin.Session{Store: s, Lock: locker{client, r.Prefix}.lock, Close: client.Close}, nil
}
