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
	client := fake.NewClientset(record("c-new"), record("b-twin", "10.0.1.0/24"), record("a-twin", "10.0.1.0/24"), record("e-late"), going, record("d-new"), record("c-twin", "10.0.1.0/24", "10.0.1.0/24"))
	o, err := parseOptions([]string{"-dry-run", "-cluster-cidr", "10.0.0.0/22,10.0.4.0/24", "-service-cluster-ip-range", "10.0.0.0/24,10.0.4.0/24"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChooser(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := dryRun(t.Context(), &out, client, c); !errors.Is(err, errWrong) {
		t.Fatal(err)
	}
	want := `a-twin	has	10.0.1.0/24
b-twin	has	10.0.1.0/24
b-twin	WRONG	nodeipam: record 10.0.1.0/24 for "b-twin": Prefixes[0]: overlaps another node's prefix, held by "a-twin"
c-new	would get	10.0.2.0/24
c-twin	has	10.0.1.0/24,10.0.1.0/24
c-twin	WRONG	nodeipam: record 10.0.1.0/24 for "c-twin": Prefixes[0]: overlaps another node's prefix, held by "a-twin"
c-twin	WRONG	nodeipam: record 10.0.1.0/24 for "c-twin": Prefixes[1]: more prefixes than slots
c-twin	WRONG	nodeipam: record 10.0.1.0/24 for "c-twin": Prefixes[1]: overlaps another node's prefix, held by "a-twin"
d-new	would get	10.0.3.0/24
e-late	WRONG	nodeipam: allocate /24: Slots[0]: full
going	is terminating
pool 10.0.0.0/22: 0 of 4 would be free
pool 10.0.4.0/24: 0 of 1 would be free
7 nodes: 3 have CIDRs, 2 would get them, 5 things are wrong
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

// What is explained is what a node would get, and why; nothing is written.
func TestExplain(t *testing.T) {
	text := entryText("a", "10.1.0.0/16", "big") + entryText("b", "10.2.0.0/16", "small")
	for name, want := range map[string]error{"one": nil, "held": nil, "none": errWrong} {
		client := fake.NewClientset(
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"size": "big"}}},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "held"}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.2.0.0/24"}}},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "none"}})
		c, err := labelled(t, text, "-explain", name)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := explain(t.Context(), &out, client, c, name); !errors.Is(err, want) || !strings.HasPrefix(out.String(), name) || strings.Count(out.String(), "\n") < 3 {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
		if err := explain(t.Context(), &out, client, c, "nobody"); err == nil || errors.Is(err, errWrong) {
			t.Error(err)
		}
		for _, a := range client.Actions() {
			if verb := a.GetVerb(); verb != "list" {
				t.Errorf("it has done a %s", verb)
			}
		}
		lost := errors.New("lost")
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, lost })
		if err := explain(t.Context(), &out, client, c, name); !errors.Is(err, lost) {
			t.Error(err)
		}
	}
}
