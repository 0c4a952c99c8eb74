package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// Nodes that another controller has served are recorded with the ClusterCIDR that their
// labels choose, of those that their CIDRs may come from, and keep their CIDRs.
func TestEntriesOfFormerNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := entryText("default", "10.0.0.0/8", "") + entryText("big", "10.1.0.0/16", "big") + entryText("other", "11.0.0.0/16", "other")
		record := func(name, size, entry string, cidrs ...string) *v1.Node {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Labels: map[string]string{"size": size}}, Spec: v1.NodeSpec{PodCIDRs: cidrs}}
			if entry != "" {
				n.Annotations = map[string]string{entryAnnotation: entry}
			}
			return n
		}
		client := fake.NewClientset(
			record("plain", "", "", "10.1.0.0/24"),                 // two fit; its labels choose default
			record("big", "big", "", "10.1.1.0/24"),                // two fit; its labels choose big
			record("moved", "other", "", "10.1.2.0/24"),            // its labels choose other, which does not fit
			record("known", "big", "default", "10.1.3.0/24"),       // stays
			record("size", "big", "", "10.1.4.0/25"),               // of no entry
			record("dual", "big", "", "10.1.5.0/24", "fd00::/120")) // of none, because no entry has both

		p := served(t, []string{"-cidr-allocator-type", multiCIDRRangeAllocator})
		if err := p.chooser.enter(text); err != nil {
			t.Fatal(err)
		}
		p.log, p.client, p.nodes = slog.New(slog.DiscardHandler), client, &nodeSource{client: client, guess: p.chooser.set.guess}
		var err error
		p.controller, err = controller.New(controller.Config{Allocator: p.chooser.allocator, Loaded: p.chooser.loaded,
			Source: p.nodes, Writer: &nodeWriter{client: client}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.controller.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		patches := len(client.Actions())
		p.recordEntries(ctx) // a leader that lost its lease
		if len(client.Actions()) != patches {
			t.Error("recorded without the lease")
		}
		p.options.leaderElect = false
		p.recordEntries(ctx)
		time.Sleep(time.Second)
		got := map[string]string{}
		for _, a := range client.Actions() {
			if patch, ok := a.(clienttesting.PatchAction); ok && !strings.Contains(string(patch.GetPatch()), "podCIDR") {
				var n v1.Node
				if err := json.Unmarshal(patch.GetPatch(), &n); err != nil || n.UID == "" {
					t.Error(err, n)
				}
				got[patch.GetName()] = n.Annotations[entryAnnotation]
			}
		}
		for name, want := range map[string]string{"plain": "default", "big": "big", "moved": "default", "known": "", "size": "", "dual": ""} {
			if got[name] != want {
				t.Errorf("%s was recorded with %q, want %q", name, got[name], want)
			}
			if as, ok := p.chooser.allocator.Lookup(name); !ok || want != "" && as.Entry != want {
				t.Errorf("%s holds %v", name, as)
			}
		}
		patches = len(client.Actions())
		p.recordEntries(ctx) // everything is recorded
		if len(client.Actions()) != patches {
			t.Error("recorded twice")
		}
		cancel()
		<-ended
	})
}
