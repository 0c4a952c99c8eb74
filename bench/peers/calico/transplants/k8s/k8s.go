//go:build transplant

package k8s

import (
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"k8s.io/client-go/kubernetes"
)

type KubeClient struct {
	bapi.Client
	ClientSet *kubernetes.Clientset
}
