package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An engine on a cluster of three. The client notices within seconds that the way to a member is cut.
func ExampleOpen() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         []string{"https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"},
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second, PermitWithoutStream: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	db, err := etcdstore.Open(ctx, client, "/ipalloc/", etcdstore.Options{NoCreate: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}

	args := alloc.AssignArgs{
		Owner: alloc.HostOwner("node-1"), Num4: 1, Use: alloc.Workload, Handle: "pod-7",
		Request: "the same for every attempt",
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		got, err := engine.AutoAssign(attempt, args)
		cancel()
		if err == nil {
			fmt.Println(got.V4[0].Address)
			return
		}
		if !store.Retryable(err) {
			log.Fatal(err, "; may have been done: ", errors.Is(err, ipalloc.ErrUnknownOutcome))
		}
		time.Sleep(100 * time.Millisecond)
	}
}
