package main

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// The resources that the provider works with: those of Cluster API, and pools of its own.
var (
	capi        = schema.GroupVersion{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2"}
	claims      = capi.WithResource("ipaddressclaims")
	addresses   = capi.WithResource("ipaddresses")
	clusters    = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
	own         = schema.GroupVersion{Group: "ipam.ipalloc.dev", Version: "v1alpha1"}
	pools       = own.WithResource("ippools")
	globalPools = own.WithResource("globalippools")
)

const (
	claimKind      = "IPAddressClaim"
	poolKind       = "IPPool"
	globalPoolKind = "GlobalIPPool"

	// finalizer keeps a claim until its address is back in the pool, and a pool until its last address is.
	finalizer = "ipam.ipalloc.dev/release"
	// protection keeps an IPAddress while its claim exists. The name is that of Cluster API's contract.
	protection = "ipam.cluster.x-k8s.io/protect-address"

	pausedAnnotation = "cluster.x-k8s.io/paused"
	clusterLabel     = "cluster.x-k8s.io/cluster-name"
)

// key is an object to look at.
type key struct {
	resource  schema.GroupVersionResource
	namespace string // empty for a global pool
	name      string
}

func (k key) String() string { return k.namespace + "/" + k.name }

// poolKey is the reverse of String for pools.
func poolKey(text string) (k key, ok bool) {
	k.namespace, k.name, ok = strings.Cut(text, "/")
	if k.resource = pools; k.namespace == "" {
		k.resource = globalPools
	}
	return k, ok
}

// isPool reports whether the object is a pool of either kind.
func (k key) isPool() bool { return k.resource == pools || k.resource == globalPools }

// reference names a pool as claims and addresses do.
type reference struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	APIGroup string `json:"apiGroup"`
}

// pool returns which pool an object of a namespace refers to; ok is false for a pool of another provider. An IPPool serves its
// own namespace only.
func (r reference) pool(namespace string) (k key, ok bool) {
	switch {
	case r.APIGroup != own.Group:
		return key{}, false
	case r.Kind == poolKind:
		return key{pools, namespace, r.Name}, true
	case r.Kind == globalPoolKind:
		return key{globalPools, "", r.Name}, true
	}
	return key{}, false
}

// claim has the fields of an IPAddressClaim that a provider uses.
type claim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ClusterName string    `json:"clusterName"`
		PoolRef     reference `json:"poolRef"`
	} `json:"spec"`
	Status struct {
		AddressRef struct {
			Name string `json:"name"`
		} `json:"addressRef"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// address has the fields of an IPAddress.
type address struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              addressSpec `json:"spec"`
}

type addressSpec struct {
	ClaimRef struct {
		Name string `json:"name"`
	} `json:"claimRef"`
	PoolRef reference `json:"poolRef"`
	Address string    `json:"address"`
	Prefix  int32     `json:"prefix"`
	Gateway string    `json:"gateway,omitempty"`
}

// owner returns the UID of the claim that controls the address, "" if none does. Any other owner reference says nothing: whoever
// may create an IPAddress chooses them.
func (a *address) owner() string {
	i := slices.IndexFunc(a.OwnerReferences, func(o metav1.OwnerReference) bool {
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		return err == nil && gv.Group == capi.Group && o.Kind == claimKind && o.Name == a.Name && o.Controller != nil && *o.Controller
	})
	if i < 0 {
		return ""
	}
	return string(a.OwnerReferences[i].UID)
}

// pool is an IPPool or a GlobalIPPool. Its fields are those of Cluster API's in-cluster provider.
type pool struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Addresses []string `json:"addresses"` // addresses, ranges (a-b), prefixes
		Prefix    int      `json:"prefix"`    // the length of the subnet's prefix
		Gateway   string   `json:"gateway"`
	} `json:"spec"`
	Status poolStatus `json:"status"`
}

type poolStatus struct {
	Addresses  counts             `json:"addresses"`
	Conditions []metav1.Condition `json:"conditions"`
}

// counts are of addresses; Used are those with an IPAddress.
type counts struct {
	Total int64 `json:"total"`
	Used  int64 `json:"used"`
	Free  int64 `json:"free"`
}

// clusterObject has the fields of a Cluster that say whether it is paused.
type clusterObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Paused bool `json:"paused"`
	} `json:"spec"`
}

// decode reads an object of an informer or of an answer.
func decode[T any](obj any) (*T, error) {
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, out)
}

// cached returns an object as a cache shows it, nil if it is not there.
func cached[T any](from cache.Indexer, namespace, name string) (*T, error) {
	if namespace != "" {
		name = namespace + "/" + name
	}
	obj, there, err := from.GetByKey(name)
	if err != nil || !there {
		return nil, err
	}
	return decode[T](obj)
}

// The indexes of the caches.
const (
	byPool    = "pool"    // claims and addresses
	byCluster = "cluster" // claims
)

var indexers = cache.Indexers{
	byPool: func(obj any) ([]string, error) {
		c, err := decode[claim](obj) // an address refers to its pool in the same place
		if err != nil {
			return nil, nil // it is reported when it is looked at
		}
		if k, ok := c.Spec.PoolRef.pool(c.Namespace); ok {
			return []string{k.String()}, nil
		}
		return nil, nil
	},
	byCluster: func(obj any) ([]string, error) {
		c, err := decode[claim](obj)
		if err != nil || c.cluster() == "" {
			return nil, nil
		}
		return []string{c.Namespace + "/" + c.cluster()}, nil
	},
}

// cluster returns the name of the Cluster that the claim belongs to, "" for none.
func (c *claim) cluster() string {
	if c.Spec.ClusterName != "" {
		return c.Spec.ClusterName
	}
	return c.Labels[clusterLabel]
}
