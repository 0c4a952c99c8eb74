package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that the provider serves: those of Cluster API, and pools of its own.
var (
	capi      = schema.GroupVersion{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2"}
	claims    = capi.WithResource("ipaddressclaims")
	addresses = capi.WithResource("ipaddresses")
	pools     = schema.GroupVersionResource{Group: "ipam.ipalloc.dev", Version: "v1alpha1", Resource: "ippools"}
)

const (
	poolKind = "IPPool"
	// finalizer keeps a claim until its address is back in the pool, and a pool until its last address is.
	finalizer = "ipam.ipalloc.dev/release"
)

// reference names a pool as claims and addresses do.
type reference struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	APIGroup string `json:"apiGroup"`
}

// claim has the fields of an IPAddressClaim that a provider uses.
type claim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PoolRef reference `json:"poolRef"`
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

// pool is an IPPool. Its fields are those of Cluster API's in-cluster provider.
type pool struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Addresses []string `json:"addresses"` // addresses, ranges (a-b), prefixes
		Prefix    int      `json:"prefix"`    // the length of the subnet's prefix
		Gateway   string   `json:"gateway"`
	} `json:"spec"`
}

// decode reads an object of an informer.
func decode[T any](obj any) (*T, error) {
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, out)
}
