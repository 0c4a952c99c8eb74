package main

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

func serviceCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

func follower4(t *testing.T, client *fake.Clientset, fixed ...string) (*serviceCIDRs, *strings.Builder) {
	pools := node("", "10.0.0.0/22").Prefixes
	a, err := nodeipam.New(nodeipam.Config{Slots: []nodeipam.Slot{{Bits: 24, Pools: pools}}, Reserved: node("", fixed...).Prefixes})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	return &serviceCIDRs{client: client, allocator: a, fixed: node("", fixed...).Prefixes,
		log: slog.New(slog.NewTextHandler(&log, nil)), freed: func() {}}, &log
}

// The ranges of ServiceCIDRs are reserved from the start, and while they are there.
// What the flag says stays reserved.
func TestServiceCIDRsAreReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(serviceCIDR("kubernetes", "fd00::/112", "10.0.0.0/24"))
		s, _ := follower4(t, client, "10.0.3.0/24")
		freed := 0
		s.freed = func() { freed++ }
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := func(reserved uint64) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := s.allocator.Stats().Pools[0].Reserved; got != reserved {
				t.Errorf("%d CIDRs are reserved, want %d", got, reserved)
			}
		}
		want(2)
		objects := client.NetworkingV1().ServiceCIDRs()
		for _, o := range []*networkingv1.ServiceCIDR{serviceCIDR("more", "10.0.2.0/25"), serviceCIDR("same", "10.0.2.0/25", "10.0.3.0/24", "10.0.1.0/24")} {
			if _, err := objects.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		want(4)
		for i, name := range []string{"more", "same"} {
			if err := objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			want(4 - 2*uint64(i))
		}
		if freed != 2 {
			t.Errorf("told %d times of a free range, want 2", freed)
		}
	})
}

// It is said once that no service range is known, and that ServiceCIDRs are not there or
// not shown.
func TestNoServiceRange(t *testing.T) {
	for _, c := range []struct {
		fixed []string
		there *networkingv1.ServiceCIDR
		err   error
		want  string
		not   string
	}{
		{nil, serviceCIDR("x"), nil, "no service CIDR", "not followed"},
		{nil, serviceCIDR("x", "10.0.0.0/24"), nil, "reserved", "no service CIDR"},
		{[]string{"10.0.0.0/24"}, serviceCIDR("x"), nil, "", "no service CIDR"},
		{nil, serviceCIDR("x"), apierrors.NewNotFound(networkingv1.Resource("servicecidrs"), ""), "no service CIDR", "reserved"},
		{[]string{"10.0.0.0/24"}, serviceCIDR("x"), apierrors.NewNotFound(networkingv1.Resource("servicecidrs"), ""), "not followed", "no service CIDR"},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset(c.there)
			if c.err != nil {
				client.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			}
			s, log := follower4(t, client, c.fixed...)
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !strings.Contains(log.String(), c.want) || strings.Contains(log.String(), c.not) {
				t.Errorf("%v, %v: %s", c.fixed, c.there.Spec, log.String())
			}
		})
	}
}

// An API server that refuses the first lists of ServiceCIDRs, or does not have the kind yet, is
// asked again. Without a range in the flag the start waits for the answer when it is refused, so
// that no node gets an address of a service; a dry run ends with the error.
func TestServiceCIDRsAreAskedForAgain(t *testing.T) {
	forbidden := apierrors.NewForbidden(networkingv1.Resource("servicecidrs"), "", nil)
	absent := apierrors.NewNotFound(networkingv1.Resource("servicecidrs"), "")
	for _, c := range []struct {
		fixed []string
		err   error
		waits bool
	}{
		{nil, forbidden, true}, {[]string{"10.0.3.0/24", "10.0.2.0/24"}, forbidden, false}, {nil, absent, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset(serviceCIDR("kubernetes", "10.0.0.0/24", "10.0.1.0/24"))
			healed := time.Now().Add(time.Minute)
			client.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
				return time.Now().Before(healed), nil, c.err
			})
			s, _ := follower4(t, client, c.fixed...)
			s.once = true
			if err := s.start(t.Context()); (err != nil) != c.waits {
				t.Errorf("a dry run: %v", err)
			}
			s.once = false
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if waited := !time.Now().Before(healed); waited != c.waits {
				t.Errorf("%v, %v: the start waited: %v", c.fixed, c.err, waited)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			shown := 0
			s.each(func(_ netip.Prefix, reserved bool) {
				if shown++; !reserved {
					t.Error("a range is shown as not reserved")
				}
			})
			if got := s.allocator.Stats().Pools[0].Reserved; got != uint64(2+len(c.fixed)) || shown != 2+len(c.fixed) {
				t.Errorf("%v, %v: %d CIDRs are reserved, %d ranges are shown", c.fixed, c.err, got, shown)
			}
		})
	}
}
