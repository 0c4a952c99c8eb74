package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/api/whereabouts.cni.cncf.io/v1alpha1"
	goipam "github.com/metal-stack/go-ipam"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var update = flag.Bool("update", false, "write the dumps that the recipes of cmd/ipamctl/MIGRATING.md convert")

const foreign = "../../cmd/ipamctl/testdata/foreign/"

// The dump of whereabouts that MIGRATING.md converts is what whereabouts' own types write, in the list that kubectl makes of it.
func TestDumpOfWhereabouts(t *testing.T) {
	pool := v1alpha1.IPPool{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IPPool"},
		ObjectMeta: metav1.ObjectMeta{Name: "10.7.0.0-24", Namespace: "kube-system", UID: types.UID("5f0c33b2-9d3f-4f45-8a39-6a1f1d3f7c11"), ResourceVersion: "4711", Generation: 3,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 2, 11, 9, 20, 11, 0, time.UTC))},
		Spec: v1alpha1.IPPoolSpec{Range: "10.7.0.0/24", Allocations: map[string]v1alpha1.IPAllocation{
			"1": {ContainerID: "56b4", PodRef: "default/a", IfName: "net1"}, "2": {ContainerID: "9cc0", PodRef: "default/b"},
		}},
	}
	compareDump(t, "whereabouts.json", map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": []any{pool}})
}

// The dump of go-ipam that MIGRATING.md converts is what go-ipam writes.
func TestDumpOfGoIPAM(t *testing.T) {
	ctx := context.Background()
	ipam := goipam.New(ctx)
	root, err := ipam.NewPrefix(ctx, "10.7.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		child, err := ipam.AcquireChildPrefix(ctx, root.Cidr, 24)
		if err != nil {
			t.Fatal(err)
		}
		if child.Cidr == "10.7.2.0/24" {
			if _, err := ipam.AcquireIP(ctx, child.Cidr); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := ipam.Dump(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var dump []map[string]any // in the order of a map
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(dump, func(x, y map[string]any) int { return cmp.Compare(x["Cidr"].(string), y["Cidr"].(string)) })
	compareDump(t, "go-ipam.json", dump)
}

// compareDump compares a dump with its file, or writes that with -update.
func compareDump(t *testing.T, file string, dump any) {
	t.Helper()
	text, err := json.Marshal(dump)
	var sorted any
	if err == nil {
		err = json.Unmarshal(text, &sorted)
	}
	if err == nil {
		text, err = json.Marshal(sorted)
	}
	if err == nil && *update {
		err = os.WriteFile(foreign+file, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(foreign + file); err != nil || string(is) != string(text)+"\n" {
		t.Errorf("%v, the library writes\n%s\nand the file has\n%s", err, text, is)
	}
}
