package kubestore_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
)

// A controller in the cluster uses the service account of its pod.
func Example() {
	ctx := context.Background()
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	s, err := kubestore.Open(ctx, config, "network", "pods", kubestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := ipset.New(s, ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = engine.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/16")})
	if err != nil { // a pool that another replica has added is no error
		log.Fatal(err)
	}
	got, err := engine.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("host1"), Num4: 1, Handle: "pod1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.V4[0].Address)
}
