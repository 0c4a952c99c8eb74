package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/ipalloc/ipalloc"
)

// An event says, of a node that no ClusterCIDR serves, what becomes of each. It fits
// what an API server takes. The end of a condition is an event, too. A server that is too
// busy for a patch is not.
func TestEventsOfConditions(t *testing.T) {
	var text strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		text.WriteString(entryText(name+strings.Repeat("x", 60), "10.1.0.0/16", name))
	}
	p := served(t, []string{"-cidr-allocator-type", multiCIDRRangeAllocator})
	if err := p.chooser.enter(text.String()); err != nil {
		t.Fatal(err)
	}
	p.log = slog.New(slog.DiscardHandler)
	recorder := record.NewFakeRecorder(10)
	p.events = &events{recorder: recorder}
	p.nodes = &nodeSource{client: fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"size": "huge"}}})}
	if err := p.nodes.Start(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	_, err := p.chooser.allocator.Allocate(node("n"))
	p.report("n", err)
	p.report("n", nil)
	p.report("n", &ipalloc.Error{Package: "controller", Op: "write", Err: ipalloc.ErrLimit})
	p.report("n", &ipalloc.Error{Package: "nodeipam", Op: "record", Err: ipalloc.ErrLimit})
	p.report("n", &ipalloc.Error{Package: "controller", Op: "write", Err: errors.Join(ipalloc.ErrConflict)})
	first := <-recorder.Events
	if message := strings.TrimPrefix(first, "Warning CIDRNotAvailable "); !strings.Contains(message, "size=huge") || len(message) > 1024 || !strings.HasSuffix(message, "...") {
		t.Errorf("%d characters: %s", len(message), message)
	}
	for _, want := range []string{"Normal CIDRConditionEnded", "Warning CIDRRecordInvalid", "Warning CIDRAssignmentFailed"} {
		if got := <-recorder.Events; !strings.HasPrefix(got, want) {
			t.Error(got)
		}
	}
	// The end of what was no event is none, and neither is that of a node that is gone.
	p.report("n", nil)
	<-recorder.Events
	p.report("n", nil)
	p.report("gone", &ipalloc.Error{Package: "nodeipam", Op: "record", Err: ipalloc.ErrLimit})
	<-recorder.Events
	p.report("gone", nil)
	if len(recorder.Events) > 0 {
		t.Error(<-recorder.Events)
	}
}
