package main

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestDryRun(t *testing.T) {
	now := metav1.Now()
	record := func(name string, cidrs ...string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: cidrs}}
	}
	going := record("going")
	going.DeletionTimestamp, going.Finalizers = &now, []string{"x/y"}
	client := fake.NewClientset(record("c-new"), record("b-twin", "10.0.1.0/24"), record("a-twin", "10.0.1.0/24"), record("e-late"), going, record("d-new"))
	o, err := parseOptions([]string{"-dry-run", "-cluster-cidr", "10.0.0.0/22", "-service-cluster-ip-range", "10.0.0.0/24"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChooser(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := dryRun(t.Context(), &out, client, c); err != nil {
		t.Fatal(err)
	}
	want := `a-twin	has	10.0.1.0/24
b-twin	has	10.0.1.0/24
b-twin	WRONG	nodeipam: record Prefixes[0] 10.0.1.0/24 for "b-twin": overlaps another node's prefix, held by "a-twin"
c-new	would get	10.0.2.0/24
d-new	would get	10.0.3.0/24
e-late	WRONG	nodeipam: allocate Slots[0] /24: full
going	is terminating
pool 10.0.0.0/22: 0 of 4 would be free
6 nodes: 2 have CIDRs, 2 would get them, 2 things are wrong
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	for _, a := range client.Actions() {
		if verb := a.GetVerb(); verb != "list" {
			t.Errorf("it has done a %s", verb)
		}
	}
	lost := errors.New("lost")
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, lost })
	if err := dryRun(t.Context(), &out, client, c); !errors.Is(err, lost) {
		t.Error(err)
	}
}
