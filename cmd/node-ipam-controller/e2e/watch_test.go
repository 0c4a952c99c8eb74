//go:build e2e && linux

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// follow watches all nodes until the test ends: the CIDRs of one must never change.
func follow(t *testing.T, client kubernetes.Interface) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	seen := map[types.UID]string{} // the CIDRs that a node was seen to have first
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			watchOnce(ctx, t, client, seen)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		t.Logf("%d nodes were seen to have CIDRs, each the same ones all the time", len(seen))
	})
}

// watchOnce watches from what there is now until the API server ends it.
func watchOnce(ctx context.Context, t *testing.T, client kubernetes.Interface, seen map[types.UID]string) {
	w, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		n, ok := e.Object.(*v1.Node)
		if !ok || len(n.Spec.PodCIDRs) == 0 {
			continue
		}
		now := strings.Join(n.Spec.PodCIDRs, ",")
		if before, ok := seen[n.UID]; ok && before != now {
			t.Errorf("%s had %s and has %s", n.Name, before, now)
		}
		seen[n.UID] = now
	}
}
