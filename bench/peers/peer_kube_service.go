package main

import (
	"context"
	"net"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	networkingv1informers "k8s.io/client-go/informers/networking/v1"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
)

// kubernetesAddrs is the ClusterIP allocator of kube-apiserver that keeps a bitmap.
// Of an IPv6 range it uses the first 65,535 addresses.
type kubernetesAddrs struct{ r *ipallocator.Range }

var kubernetesAddrPeer = addrPeer[net.IP, kubernetesAddrs]{
	name: kubernetes,
	most: 1<<16 - 1,
	make: func(p netip.Prefix) (kubernetesAddrs, error) {
		r, err := ipallocator.NewInMemory(ipNet(p))
		return kubernetesAddrs{r}, err
	},
	handle: func(a netip.Addr) net.IP { return a.AsSlice() },
	addr:   addrOfIP,
}

func (k kubernetesAddrs) AllocateNext() (net.IP, error) { return k.r.AllocateNext() }
func (k kubernetesAddrs) Allocate(ip net.IP) error      { return k.r.Allocate(ip) }
func (k kubernetesAddrs) Release(ip net.IP)             { _ = k.r.Release(ip) } // nil always

func addrOfIP(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap() // it may come in the 16-byte form
}

// kubernetesObjects is the ClusterIP allocator that current clusters run: an IPAddress
// object for each address, here with a store that answers at once in place of the API
// server.
type kubernetesObjects struct{ a *ipallocator.Allocator }

var kubernetesObjectPeer = addrPeer[net.IP, kubernetesObjects]{
	name: kubernetes,
	most: 1<<63 - 1,
	make: func(p netip.Prefix) (kubernetesObjects, error) {
		informer := syncedInformer{informers.NewSharedInformerFactory(nil, 0).Networking().V1().IPAddresses()}
		a, err := ipallocator.NewIPAllocator(ipNet(p), instantAPI{store: informer.Informer().GetIndexer()}, informer)
		return kubernetesObjects{a}, err
	},
	handle: func(a netip.Addr) net.IP { return a.AsSlice() },
	addr:   addrOfIP,
}

func (k kubernetesObjects) AllocateNext() (net.IP, error) { return k.a.AllocateNext() }
func (k kubernetesObjects) Allocate(ip net.IP) error      { return k.a.Allocate(ip) }
func (k kubernetesObjects) Release(ip net.IP)             { _ = k.a.Release(ip) } // nil always

// syncedInformer is an informer that has seen everything: the store is written to
// directly.
type syncedInformer struct {
	networkingv1informers.IPAddressInformer
}

func (i syncedInformer) Informer() cache.SharedIndexInformer {
	return synced{i.IPAddressInformer.Informer()}
}

type synced struct{ cache.SharedIndexInformer }

func (synced) HasSynced() bool { return true }

// instantAPI is the API server: objects are in the store when the call returns.
type instantAPI struct {
	networkingv1client.NetworkingV1Interface
	networkingv1client.IPAddressInterface
	store cache.Indexer
}

func (c instantAPI) IPAddresses() networkingv1client.IPAddressInterface { return c }

func (c instantAPI) Create(_ context.Context, ip *networkingv1.IPAddress, _ metav1.CreateOptions) (*networkingv1.IPAddress, error) {
	return ip, c.store.Add(ip)
}

func (c instantAPI) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	return c.store.Delete(&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// kubernetesPorts is the node port allocator of kube-apiserver.
type kubernetesPorts struct{ p *portallocator.PortAllocator }

var kubernetesPortPeer = portPeer[int, kubernetesPorts]{
	name: kubernetes,
	make: func(first, last uint16) (kubernetesPorts, error) {
		p, err := portallocator.NewInMemory(utilnet.PortRange{Base: int(first), Size: int(last-first) + 1})
		return kubernetesPorts{p}, err
	},
	handle: func(n uint16) int { return int(n) },
}

func (k kubernetesPorts) AllocateNext() (int, error) { return k.p.AllocateNext() }
func (k kubernetesPorts) Allocate(n int) error       { return k.p.Allocate(n) }
func (k kubernetesPorts) Release(n int)              { _ = k.p.Release(n) } // nil always
