//go:build transplant

// Package k8s is a stub for the datastore that the suite does not use.
package k8s

import (
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"k8s.io/client-go/kubernetes"
)

type KubeClient struct {
	bapi.Client
	ClientSet *kubernetes.Clientset
}
