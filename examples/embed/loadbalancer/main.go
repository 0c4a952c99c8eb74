// Command loadbalancer gives Services of type LoadBalancer their addresses. Its pool and all that it hands out
// are objects of the same API server, so that it needs no database. Two or three replicas may run at the same
// time: a Service gets the address that the first of them assigned to it. A pass makes the held addresses agree
// with the Services, so a replica may be stopped anywhere and started again.
//
//	kubectl apply -f config/crd.yaml -f config/rbac.yaml   # of ipset/kubestore
//	go run . -kubeconfig ~/.kube/config -pool 203.0.113.0/24
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// controller owns all blocks. It is not a machine, so all replicas share them.
var controller = alloc.VirtualOwner("loadbalancer")

// replica is one process of the controller.
type replica struct {
	services kubernetes.Interface
	engine   *ipset.Engine
	gone     *ipset.Collector
}

// newReplica returns a replica on a store. grace is how long a Service must be missing before its
// address is released: a list of Services may be older than an address that another replica assigned.
func newReplica(ctx context.Context, services kubernetes.Interface, db store.Store, pool netip.Prefix, grace time.Duration) (*replica, error) {
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		return nil, err
	}
	err = engine.AddPool(ctx, alloc.Pool{Name: "public", Prefix: pool, BlockBits: pool.Bits(), Uses: alloc.LoadBalancer})
	return &replica{services, engine, engine.Operator().NewCollector(grace)}, err
}

// pass serves every Service, then releases the addresses of Services that are gone.
func (r *replica) pass(ctx context.Context) error {
	list, err := r.services.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	exists := make(map[string]bool)
	for i := range list.Items {
		if s := &list.Items[i]; s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			exists[string(s.UID)] = true
			if err := r.serve(ctx, s); err != nil {
				return err
			}
		}
	}
	released, err := r.gone.Collect(ctx, func(a alloc.Allocation) alloc.Liveness {
		if exists[a.Handle] {
			return alloc.Alive
		}
		return alloc.Leaked // not Gone, which does not wait: the list may be older than the address
	})
	for _, a := range released {
		fmt.Println(a.Attributes.Map()["service"], "is gone and gave back", a.Address)
	}
	return err
}

// serve gives a Service its address and writes it into the status. A Service for which there is no
// address waits for the next pass.
func (r *replica) serve(ctx context.Context, s *corev1.Service) error {
	name := s.Namespace + "/" + s.Name
	attributes, err := alloc.NewAttributes(map[string]string{"service": name})
	if err != nil {
		return err
	}
	// The handle is the UID: a Service that is deleted and made again is another one.
	got, err := r.engine.AutoAssign(ctx, alloc.AssignArgs{
		Owner: controller, Num4: 1, Use: alloc.LoadBalancer, Existing: true,
		Handle: string(s.UID), Attributes: attributes,
	})
	if errors.Is(err, ipalloc.ErrFull) {
		fmt.Println(name, "is pending:", err) // an event, in a controller
		return nil
	} else if err != nil {
		return err
	}
	ingress := []corev1.LoadBalancerIngress{{IP: got.V4[0].Address.String()}}
	if now := s.Status.LoadBalancer.Ingress; len(now) == 1 && now[0].IP == ingress[0].IP {
		return nil
	}
	patch, err := json.Marshal(map[string]any{ // not for another Service of this name
		"metadata": map[string]any{"uid": s.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return err
	}
	_, err = r.services.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		fmt.Println(name, ingress[0].IP)
	}
	return err
}

// run makes passes until ctx ends. A controller would also make one when a Service changes.
func run(ctx context.Context, kubeconfig, namespace string, pool netip.Prefix, every, grace time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig) // without a file: that of the pod
	if err != nil {
		return err
	}
	services, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	db, err := kubestore.Open(ctx, config, namespace, "loadbalancer", kubestore.Options{})
	if err != nil {
		return err
	}
	r, err := newReplica(ctx, services, db, pool, grace)
	if err != nil {
		return err
	}
	for {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			log.Print(err) // a lost answer, a Service that has just gone: the next pass tries again
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig `file` (default: the service account of the pod)")
	namespace := flag.String("namespace", "default", "`namespace` of the store's objects")
	pool := flag.String("pool", "203.0.113.0/24", "IPv4 `prefix` that addresses come from")
	flag.Parse()
	prefix, err := netip.ParsePrefix(*pool)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, *namespace, prefix, 5*time.Second, time.Minute); err != nil {
		log.Fatal(err)
	}
}
