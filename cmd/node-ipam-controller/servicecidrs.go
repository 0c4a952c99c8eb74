package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/networking/v1"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// serviceCIDRs reserves the ranges of the API server's ServiceCIDR objects, as they are
// added and removed, in addition to those of -service-cluster-ip-range.
type serviceCIDRs struct {
	client    kubernetes.Interface
	allocator *nodeipam.Allocator
	fixed     []netip.Prefix // of the flag
	log       *slog.Logger
	freed     func() // called when a range is free again

	once bool // start fails with the first error; for -dry-run and -explain

	mu     sync.Mutex
	lister listersv1.ServiceCIDRLister
	ours   map[netip.Prefix]bool // the ranges of the objects, and whether each is reserved
}

// askAgain is the pause before an API server that did not show ServiceCIDRs is asked again.
const askAgain = 30 * time.Second

// start reserves the present ranges and follows them until ctx ends. While the API server
// does not list ServiceCIDRs, start retries every second, because nodes would get
// addresses of services. It goes on without them if the kind does not exist, or if the
// list is forbidden and the flag has ranges; a goroutine then asks again.
func (s *serviceCIDRs) start(ctx context.Context) error {
	for {
		err := s.follow(ctx)
		refused, absent := apierrors.IsForbidden(err), apierrors.IsNotFound(err)
		switch {
		case err == nil:
			s.warn()
			return nil
		case absent, refused && len(s.fixed) > 0:
			s.log.Warn("ServiceCIDRs are not followed yet", "err", err)
			s.warn()
			if !s.once {
				go s.followLater(ctx)
			}
			return nil
		case s.once || ctx.Err() != nil:
			return err
		}
		s.log.Error("no node gets a CIDR before ServiceCIDRs are listed; retrying", "err", err)
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// followLater asks until the API server shows ServiceCIDRs.
func (s *serviceCIDRs) followLater(ctx context.Context) {
	for sleep(ctx, askAgain) {
		if err := s.follow(ctx); err == nil {
			s.log.Info("ServiceCIDRs are followed")
			return
		}
	}
}

// sleep waits for d and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// follow reserves the present ranges and follows them until ctx ends. The informer retries
// in silence for ever, so a request of its own finds out whether the list is possible.
func (s *serviceCIDRs) follow(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := s.client.NetworkingV1().ServiceCIDRs().List(first, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(upToDate))
	objects := factory.Networking().V1().ServiceCIDRs()
	s.mu.Lock()
	s.lister = objects.Lister()
	s.mu.Unlock()
	if err := observe(ctx, factory, func(any) { s.sync() }, objects.Informer()); err != nil {
		return err
	}
	s.sync()
	return nil
}

// each calls yield with each range of services, and whether no node gets any of it.
func (s *serviceCIDRs) each(yield func(p netip.Prefix, reserved bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.fixed {
		yield(p, true)
	}
	for p, reserved := range s.ours {
		yield(p, reserved)
	}
}

// warn says when no service range is known.
func (s *serviceCIDRs) warn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fixed)+len(s.ours) == 0 {
		s.log.Warn("no service CIDR: -service-cluster-ip-range is not set, and there is no ServiceCIDR")
	}
}

// sync makes the reservations those of the objects.
func (s *serviceCIDRs) sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, err := s.lister.List(labels.Everything())
	if err != nil {
		return // of a cache; never
	}
	now := map[netip.Prefix]bool{}
	for _, o := range objects {
		for _, p := range s.ranges(o) {
			if now[p] = now[p] || s.ours[p]; now[p] {
				continue
			}
			if err := s.allocator.Reserve(p); err != nil {
				s.log.Error("reserve a service CIDR", "object", o.Name, "cidr", p, "err", err)
				continue
			}
			now[p] = true
			s.log.Info("service CIDR reserved", "object", o.Name, "cidr", p, "nodes inside", len(s.allocator.Holders(p)))
		}
	}
	for p, reserved := range s.ours {
		if _, stays := now[p]; !stays && reserved && s.allocator.Unreserve(p) == nil {
			s.log.Info("service CIDR free again", "cidr", p)
			defer s.freed()
		}
	}
	s.ours = now
}

// ranges returns the ranges of an object that the flag does not have.
func (s *serviceCIDRs) ranges(o *networkingv1.ServiceCIDR) (ps []netip.Prefix) {
	for _, text := range o.Spec.CIDRs {
		if p, err := parseCIDR(text); err == nil && !slices.Contains(s.fixed, p) {
			ps = append(ps, p)
		}
	}
	return ps
}
