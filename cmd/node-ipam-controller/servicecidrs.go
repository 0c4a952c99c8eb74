package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/networking/v1"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// serviceCIDRs reserves the ranges of the ServiceCIDR objects of the API server, as they
// come and go, besides those of -service-cluster-ip-range.
type serviceCIDRs struct {
	client    kubernetes.Interface
	allocator *nodeipam.Allocator
	fixed     []netip.Prefix // of the flag
	log       *slog.Logger
	freed     func() // called when a range is free again

	mu     sync.Mutex
	lister listersv1.ServiceCIDRLister
	ours   map[netip.Prefix]bool // reserved for an object
}

// start returns when the ranges that there are have been reserved, and follows them
// until ctx ends. An API server without ServiceCIDRs, or one that does not show them to
// this controller, has only the ranges of the flag.
func (s *serviceCIDRs) start(ctx context.Context) error {
	_, err := s.client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		s.log.Warn("ServiceCIDRs are not followed", "err", err)
		s.warn()
		return nil
	case err != nil:
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(upToDate))
	objects := factory.Networking().V1().ServiceCIDRs()
	s.lister = objects.Lister()
	if err := observe(ctx, factory, func(any) { s.sync() }, objects.Informer()); err != nil {
		return err
	}
	s.sync()
	s.warn()
	return nil
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
			now[p] = true
			if s.ours[p] {
				continue
			}
			if err := s.allocator.Reserve(p); err != nil {
				s.log.Error("reserve a service CIDR", "object", o.Name, "cidr", p, "err", err)
				continue
			}
			s.log.Info("service CIDR reserved", "object", o.Name, "cidr", p, "nodes inside", len(s.allocator.Holders(p)))
		}
	}
	for p := range s.ours {
		if !now[p] && s.allocator.Unreserve(p) == nil {
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
