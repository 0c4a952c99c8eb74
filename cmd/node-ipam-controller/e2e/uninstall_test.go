//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// uninstall removes finalizers and definitions as deploy/README.md says, while the controller
// does not run, and installs them again. Nodes keep their CIDRs all the time.
func (r *run) uninstall(flags []string) {
	readme, err := os.ReadFile("../deploy/README.md")
	if err != nil {
		r.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^ +for kind in (\S+) (\S+); do$`).FindStringSubmatch(string(readme))
	patch := regexp.MustCompile(`kubectl patch --type=merge -p '(\S+)'`).FindStringSubmatch(string(readme))
	if kinds == nil || patch == nil {
		r.Fatal("deploy/README.md does not say how to remove the finalizers")
	}
	before := map[string]string{}
	for _, n := range r.nodes() {
		before[n.Name] = strings.Join(n.Spec.PodCIDRs, " ")
	}
	definition := func(kind string) string { return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + kind }
	gone := func(kind string) bool {
		return apierrors.IsNotFound(r.c.client.RESTClient().Get().AbsPath(definition(kind)).Do(r.Context()).Error())
	}
	objects := map[string]string{} // what creates them again, by path
	for _, kind := range kinds[1:] {
		resource, group, _ := strings.Cut(kind, ".")
		path := "/apis/" + group + "/v1/" + resource
		data, err := r.c.client.RESTClient().Get().AbsPath(path).DoRaw(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		var list unstructured.UnstructuredList
		if err := list.UnmarshalJSON(data); err != nil {
			r.Fatal(err)
		}
		for _, o := range list.Items {
			text, err := json.Marshal(map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(),
				"metadata": map[string]any{"name": o.GetName()}, "spec": o.Object["spec"]})
			if err != nil {
				r.Fatal(err)
			}
			objects[path+"/"+o.GetName()] = string(text)
		}
		if err := r.c.client.RESTClient().Delete().AbsPath(definition(kind)).Do(r.Context()).Error(); err != nil {
			r.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	for _, kind := range kinds[1:] {
		if gone(kind) {
			r.Errorf("%s is gone before its finalizers are", kind)
		}
	}
	if len(objects) < 2 {
		r.Errorf("%d objects", len(objects))
	}
	for path := range objects {
		if err := r.c.client.RESTClient().Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch[1])).Do(r.Context()).Error(); err != nil {
			r.Error(err)
		}
	}
	for _, kind := range kinds[1:] {
		wait(r.T, kind+" to be gone", func() bool { return gone(kind) })
	}
	r.c.apply(r.T, "../deploy/chart/crds/crds.yaml")
	r.waitServed(clusterCIDRPath, configPath)
	for path, text := range objects {
		r.post(path[:strings.LastIndexByte(path, '/')], text, "")
	}
	r.controller(r.direct, flags...)
	late := made("late", 1)
	r.each(late, r.create)
	wait(r.T, "all nodes to be served", func() bool { return r.served() == len(before)+1 })
	r.check()
	for _, n := range r.nodes() {
		if had, ok := before[n.Name]; ok && had != strings.Join(n.Spec.PodCIDRs, " ") {
			r.Errorf("%s had %s and has %v", n.Name, had, n.Spec.PodCIDRs)
		}
	}
}
