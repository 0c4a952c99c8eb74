//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cmd/node-ipam-controller/serviceips"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// TestServiceIPs allocates service addresses beside the allocator inside kube-apiserver:
// two programs and the API server on the same ranges, lost answers, and ServiceCIDRs that
// come, drain, return and go.
func TestServiceIPs(t *testing.T) {
	c := newCluster(t, "10.96.0.0/24,fd00:10::/112")
	wait(t, "the default ServiceCIDR", func() bool {
		s, err := c.client.NetworkingV1().ServiceCIDRs().Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err == nil && len(s.Status.Conditions) > 0
	})
	a, b := newServiceIPs(t, c.client), newServiceIPs(t, lossyClient(t, c))
	t.Run("together", func(t *testing.T) { takeTogether(t, c, a, b) })
	t.Run("named", func(t *testing.T) { takeNamed(t, c, a) })
	t.Run("ranges", func(t *testing.T) { followRanges(t, c, a) })
	for _, s := range []*serviceips.Allocator{a, b} {
		if err := s.Registry().Check(); err != nil {
			t.Error(err)
		}
	}
}

var anyV4, anyV6 = netip.IPv4Unspecified(), netip.IPv6Unspecified()

func newServiceIPs(t *testing.T, client kubernetes.Interface) *serviceips.Allocator {
	s, err := serviceips.New(client, servicealloc.Random(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx, func() { close(ready) })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-ready
	return s
}

// lossy loses a third of the answers about IPAddress objects, after or before the server
// has seen the request; watches go on.
type lossy struct {
	next          http.RoundTripper
	after, before atomic.Int64
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "ipaddresses") && r.URL.Query().Get("watch") == "" && r.Method != http.MethodGet {
		switch rand.IntN(6) {
		case 0:
			l.before.Add(1)
			return nil, errors.New("the connection was lost")
		case 1:
			l.after.Add(1)
			if resp, err := l.next.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
			return nil, errors.New("the connection was lost")
		}
	}
	return l.next.RoundTrip(r)
}

func lossyClient(t *testing.T, c *cluster) kubernetes.Interface {
	config := &rest.Config{Host: c.url, BearerToken: c.admin, QPS: 5000, Burst: 5000, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l := &lossy{next: next}
		t.Cleanup(func() {
			if l.after.Load() == 0 || l.before.Load() == 0 {
				t.Error("no answer was lost")
			}
		})
		return l
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// objects returns who owns each address, as the API server has it.
func (c *cluster) objects(t *testing.T) map[netip.Addr]string {
	t.Helper()
	list, err := c.client.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[netip.Addr]string{}
	for _, i := range list.Items {
		out[netip.MustParseAddr(i.Name)] = i.Spec.ParentRef.Namespace + "/" + i.Spec.ParentRef.Name
	}
	return out
}

// takeTogether fills most of a /24 from three sides at once. Each address that a program
// returned is its own in the API server; in the end all registries know all objects.
func takeTogether(t *testing.T, c *cluster, programs ...*serviceips.Allocator) {
	var mu sync.Mutex
	given := map[netip.Addr]string{}
	var wg sync.WaitGroup
	for p, s := range programs {
		for worker := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range 12 {
					name := fmt.Sprintf("svc-%d-%d-%d", p, worker, i)
					for _, family := range []netip.Addr{anyV4, anyV6} {
						a, err := s.Take(t.Context(), "default", name, family)
						if err != nil {
							continue // full, or not known: no caller got the address
						}
						mu.Lock()
						if other := given[a]; other != "" {
							t.Errorf("%v was given to %s and %s", a, other, name)
						}
						given[a] = "default/" + name
						mu.Unlock()
						if i%4 == 3 {
							mu.Lock()
							delete(given, a) // before another one gets it
							mu.Unlock()
							_ = s.Release(t.Context(), "default", name, a)
						}
					}
				}
			}()
		}
	}
	for i := range 40 { // the allocator inside kube-apiserver
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("native-", i)}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}
		if _, err := c.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	objects := c.objects(t)
	for a, name := range given {
		if objects[a] != name {
			t.Errorf("%v was given to %s, the API server has %q", a, name, objects[a])
		}
	}
	t.Logf("%d addresses were given and kept, %d objects exist", len(given), len(objects))
	for _, s := range programs {
		wait(t, "the registry to know all objects", func() bool {
			for a := range c.objects(t) {
				if _, _, ok := s.Registry().OwnerOf(a); !ok {
					return false
				}
			}
			return true
		})
	}
}

// takeNamed asks for the address of cluster DNS, which is then refused to another service.
func takeNamed(t *testing.T, c *cluster, s *serviceips.Allocator) {
	dns := netip.MustParseAddr("10.96.0.10")
	for a, name := range c.objects(t) {
		if a == dns {
			t.Skipf("%s has it already", name)
		}
	}
	if a, err := s.Take(t.Context(), "kube-system", "kube-dns", dns); err != nil || a != dns {
		t.Fatal(a, err)
	}
	if _, err := s.Take(t.Context(), "default", "thief", dns); !errors.Is(err, ipalloc.ErrOccupied) {
		t.Error(err)
	}
	if err := s.Release(t.Context(), "kube-system", "kube-dns", dns); err != nil {
		t.Error(err)
	}
	if name := c.objects(t)[dns]; name != "" {
		t.Errorf("%s still has it", name)
	}
}

// followRanges adds a ServiceCIDR, drains and undrains it, and lets it go.
func followRanges(t *testing.T, c *cluster, s *serviceips.Allocator) {
	cidrs := c.client.NetworkingV1().ServiceCIDRs()
	const finalizer = "example.ipalloc/wait"
	o, err := cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second", Finalizers: []string{finalizer}},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.112.0.0/28"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state := func(what string, draining bool) {
		t.Helper()
		wait(t, "the range to be "+what, func() bool {
			for _, r := range s.Registry().Ranges() {
				if r.Name == "second" {
					return r.Draining == draining
				}
			}
			return what == "gone"
		})
	}
	ready := func(status metav1.ConditionStatus) {
		t.Helper()
		o, err = cidrs.Get(t.Context(), "second", metav1.GetOptions{})
		if err == nil {
			o.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()}}
			o, err = cidrs.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state("known", true)
	mine := netip.MustParseAddr("10.112.0.5")
	if _, err := s.Take(t.Context(), "default", "in-second", mine); !errors.Is(err, ipalloc.ErrInUse) {
		t.Errorf("taken before the range was ready: %v", err)
	}
	ready(metav1.ConditionTrue)
	state("ready", false)
	if a, err := s.Take(t.Context(), "default", "in-second", mine); err != nil || a != mine {
		t.Fatal(a, err)
	}
	ready(metav1.ConditionFalse)
	state("draining", true)
	ready(metav1.ConditionTrue)
	state("ready again", false)
	if err := cidrs.Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	state("terminating", true)
	if err := s.Release(t.Context(), "default", "in-second", mine); err != nil {
		t.Fatal(err)
	}
	o, err = cidrs.Get(t.Context(), "second", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.Finalizers = nil
	if _, err := cidrs.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	state("gone", false)
}
