// Package serviceips allocates service addresses as the allocator inside kube-apiserver
// does, with package servicealloc for the search. An address belongs to the service that
// the IPAddress object of that name refers to. The ranges are the ServiceCIDR objects of
// the cluster.
//
// Any number of allocators, the one inside kube-apiserver included, may work on the same
// ranges, because only one of them can create the object of an address. The registry
// follows the objects, so the first attempt nearly always succeeds.
//
//	Take     take an address, create its IPAddress, then commit. If the object exists,
//	         the address stays taken for its owner, and the next one is tried. After an
//	         unclear answer the object is read before anything is given back.
//	Release  delete the object, then release the address.
//	Run      ranges come, drain, return and go as their objects do; addresses follow the
//	         IPAddress objects that others create and delete.
package serviceips

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// managedBy marks the objects of this program, so that the repair loop inside
// kube-apiserver leaves them alone.
const managedBy = "serviceips.ipalloc.example"

// Allocator allocates service addresses. All methods are safe for concurrent use.
type Allocator struct {
	client   kubernetes.Interface
	registry *servicealloc.Registry

	mu   sync.Mutex
	gone map[string]bool // ranges whose object is gone and that still have holders
}

// New returns an allocator without ranges; Run brings them.
func New(client kubernetes.Interface, opts ...servicealloc.Option) (*Allocator, error) {
	r, err := servicealloc.NewRegistry(servicealloc.PortRange{}, opts...)
	return &Allocator{client: client, registry: r, gone: map[string]bool{}}, err
}

// Registry returns the registry. The caller must only read it.
func (a *Allocator) Registry() *servicealloc.Registry { return a.registry }

// owner returns the holder of the address of an IPAddress object. Each object is one grant.
func owner(ip *networkingv1.IPAddress) string {
	p := ip.Spec.ParentRef
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s", p.Namespace, p.Name, ip.Labels[networkingv1.LabelIPAddressFamily])
}

// newObject returns the object of an address that a service has.
func newObject(namespace, service string, addr netip.Addr) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: addr.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: family(addr), networkingv1.LabelManagedBy: managedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: namespace, Name: service}},
	}
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// Take allocates the address want to a service and returns it when its object exists. An
// unspecified want (0.0.0.0 or ::) means any address of that family.
//
// It fails with ipalloc.ErrFull and the other errors of servicealloc.Registry.Begin, with
// ipalloc.ErrOccupied if want has another owner, and with ipalloc.ErrUnknownOutcome if it
// is not known whether the object exists: then the address stays taken for the service.
func (a *Allocator) Take(ctx context.Context, namespace, service string, want netip.Addr) (netip.Addr, error) {
	for {
		object := newObject(namespace, service, want)
		tx, grant, err := a.registry.Begin(owner(object), servicealloc.Request{Addrs: []netip.Addr{want}})
		if err != nil {
			return netip.Addr{}, err
		}
		got := grant.Addrs[0]
		object.Name = got.String()
		other, err := a.create(ctx, object)
		switch {
		case err == nil && other == nil:
			return got, tx.Commit()
		case err == nil:
			// Another allocator was first. The claim goes to its service as this one
			// ends, so that the address is not handed out in between.
			a.registry.Load([]servicealloc.Grant{{Owner: owner(other), Addrs: []netip.Addr{got}}})
			if err := tx.Rollback(); err != nil {
				return netip.Addr{}, err
			}
			if !want.IsUnspecified() {
				return netip.Addr{}, &ipalloc.Error{Package: "serviceips", Op: "take", Addr: want, Holder: owner(other), Err: ipalloc.ErrOccupied}
			}
		case errors.Is(err, ipalloc.ErrUnknownOutcome):
			return netip.Addr{}, errors.Join(err, tx.Commit())
		default:
			return netip.Addr{}, errors.Join(err, tx.Rollback())
		}
	}
}

// create creates an object. It returns the one that is there instead, if it is not the
// caller's, and reads it if the answer does not say.
func (a *Allocator) create(ctx context.Context, object *networkingv1.IPAddress) (other *networkingv1.IPAddress, err error) {
	ips := a.client.NetworkingV1().IPAddresses()
	_, err = ips.Create(ctx, object, metav1.CreateOptions{})
	switch {
	case err == nil:
		return nil, nil
	case definite(err):
		return nil, err
	}
	existing, readErr := a.read(ctx, object.Name)
	switch {
	case readErr == nil && owner(existing) == owner(object):
		return nil, nil
	case readErr == nil:
		return existing, nil
	case apierrors.IsNotFound(readErr) && !apierrors.IsAlreadyExists(err):
		return nil, err // it was not created
	case apierrors.IsNotFound(readErr):
		return a.create(ctx, object) // it was there and is gone
	}
	return nil, &ipalloc.Error{Package: "serviceips", Op: "take", Text: object.Name, Err: errors.Join(ipalloc.ErrUnknownOutcome, err, readErr)}
}

// read reads an object, three times if it must.
func (a *Allocator) read(ctx context.Context, name string) (ip *networkingv1.IPAddress, err error) {
	for try := range 3 {
		if ip, err = a.client.NetworkingV1().IPAddresses().Get(ctx, name, metav1.GetOptions{}); err == nil || apierrors.IsNotFound(err) {
			return ip, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Duration(try+1) * 50 * time.Millisecond):
		}
	}
	return nil, err
}

// definite reports whether the server answered that it has not made the change, and
// nothing is there.
func definite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err)
}

// Release deletes the object of an address of a service and releases the address.
// After an unclear answer it reads the object and tries again, three times in all. If it
// fails, the address stays taken until Run sees the object go.
func (a *Allocator) Release(ctx context.Context, namespace, service string, addr netip.Addr) error {
	mine := owner(newObject(namespace, service, addr))
	var err error
	for range 3 {
		var object *networkingv1.IPAddress
		if object, err = a.read(ctx, addr.String()); err == nil && owner(object) == mine {
			err = a.client.NetworkingV1().IPAddresses().Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}})
		}
		if err == nil || apierrors.IsNotFound(err) {
			_, err = a.registry.Release(mine, 0)
			a.sweep()
			if errors.Is(err, ipalloc.ErrNotHeld) {
				return nil // Run has seen it go
			}
			return err
		}
	}
	return err
}

// Run follows the objects until ctx ends. It calls ready when all that exist are known;
// nothing must be taken before.
func (a *Allocator) Run(ctx context.Context, ready func()) error {
	factory := informers.NewSharedInformerFactory(a.client, 0)
	cidrs, ips := factory.Networking().V1().ServiceCIDRs().Informer(), factory.Networking().V1().IPAddresses().Informer()
	handle := func(i cache.SharedIndexInformer, set, gone func(any)) cache.ResourceEventHandlerRegistration {
		h, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: set, UpdateFunc: func(_, o any) { set(o) },
			DeleteFunc: func(o any) {
				if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = t.Obj
				}
				gone(o)
			},
		})
		if err != nil {
			panic(err) // the informer has stopped, which it has not
		}
		return h
	}
	h1, h2 := handle(cidrs, a.setRange, a.rangeGone), handle(ips, a.setAddress, a.addressGone)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), h1.HasSynced, h2.HasSynced) {
		return ctx.Err()
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// setRange follows a ServiceCIDR: one that is being deleted, or is not ready, drains.
func (a *Allocator) setRange(o any) {
	s := o.(*networkingv1.ServiceCIDR)
	info := servicealloc.RangeInfo{Name: s.Name,
		Draining: s.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(s.Status.Conditions, networkingv1.ServiceCIDRConditionReady)}
	for _, text := range s.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			info.Prefixes = append(info.Prefixes, p.Masked())
		}
	}
	a.mu.Lock()
	delete(a.gone, s.Name)
	a.mu.Unlock()
	_ = a.registry.SetRange(info) // what the API server accepts, the registry does
}

// rangeGone removes a range. Addresses that are held in it although it is gone keep it
// draining; it goes with the last of them.
func (a *Allocator) rangeGone(o any) {
	name := o.(*networkingv1.ServiceCIDR).Name
	a.mu.Lock()
	a.gone[name] = true
	a.mu.Unlock()
	for _, info := range a.registry.Ranges() {
		if info.Name == name {
			info.Draining = true
			_ = a.registry.SetRange(info)
		}
	}
	a.sweep()
}

// sweep removes the ranges that are gone and have no holder any more.
func (a *Allocator) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.gone {
		if err := a.registry.RemoveRange(name); !errors.Is(err, ipalloc.ErrInUse) {
			delete(a.gone, name)
		}
	}
}

// setAddress notes an address that another allocator has taken, or this one.
func (a *Allocator) setAddress(o any) {
	ip := o.(*networkingv1.IPAddress)
	if addr, err := netip.ParseAddr(ip.Name); err == nil {
		a.registry.Load([]servicealloc.Grant{{Owner: owner(ip), Addrs: []netip.Addr{addr}}})
	}
}

// addressGone notes an address that was given back, here or elsewhere. While a transaction
// of the owner is open, that decides.
func (a *Allocator) addressGone(o any) {
	ip := o.(*networkingv1.IPAddress)
	addr, err := netip.ParseAddr(ip.Name)
	if err != nil {
		return
	}
	if by, generation, ok := a.registry.OwnerOf(addr); ok && by == owner(ip) {
		_, _, _ = a.registry.Move(servicealloc.Grant{Owner: by, Generation: generation, Addrs: []netip.Addr{addr}}, servicealloc.Grant{})
		a.sweep()
	}
}
