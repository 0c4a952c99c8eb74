package manifests

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const controller = "../../../cmd/node-ipam-controller/deploy"

type object map[string]any

// objects reads manifests by kind, namespace and name.
func objects(t *testing.T, text []byte) map[string]object {
	t.Helper()
	found := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(o) == 0 {
			continue
		}
		m := o["metadata"].(object)
		namespace, _ := m["namespace"].(string)
		key := strings.Join([]string{o["kind"].(string), namespace, m["name"].(string)}, " ")
		if found[key] != nil {
			t.Errorf("%s stands there twice", key)
		}
		found[key] = o
	}
}

func chart(t *testing.T, values map[string]any) map[string]object {
	t.Helper()
	text, err := Chart(controller+"/chart", "kube-system", values)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

// The chart makes the same of a cluster as the kustomizations, for both allocators.
func TestChartIsTheKustomization(t *testing.T) {
	for dir, config := range map[string]map[string]any{
		"range":     {"cidr-allocator-type": "RangeAllocator", "cluster-cidr": "CLUSTER_CIDRS"},
		"multicidr": {"cidr-allocator-type": "MultiCIDRRangeAllocator"},
	} {
		text, err := Kustomization(filepath.Join(controller, dir))
		if err != nil {
			t.Fatal(err)
		}
		want, got := objects(t, text), chart(t, map[string]any{"config": config})
		crds := map[string]object{}
		for _, set := range []map[string]object{want, got} {
			for key, o := range maps.Clone(set) {
				delete(set, key)
				if o["kind"] == "CustomResourceDefinition" {
					crds[key+dir] = o // the chart has them for both
					continue
				}
				set[settled(t, key, o)] = o
			}
		}
		if len(crds) != 2 {
			t.Errorf("definitions %v", slices.Collect(maps.Keys(crds)))
		}
		if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
			t.Errorf("the chart has %v\n%s has %v", a, dir, b)
		}
		for key := range want {
			if !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("%s: the chart has\n%v\n%s has\n%v", key, got[key], dir, want[key])
			}
		}
	}
}

// settled drops what may differ: labels and annotations, the hash in the name of a
// generated ConfigMap, the form of the settings. It returns the key of the object.
func settled(t *testing.T, key string, o object) string {
	t.Helper()
	delete(o["metadata"].(object), "labels")
	switch o["kind"] {
	case "ConfigMap":
		m := o["metadata"].(object)
		m["name"] = "node-ipam-controller"
		key = "ConfigMap " + m["namespace"].(string)
		var config object
		if err := yaml.Unmarshal([]byte(o["data"].(object)["config.yaml"].(string)), &config); err != nil {
			t.Error(err)
		}
		if config["leader-elect-resource-namespace"] == "kube-system" {
			delete(config, "leader-elect-resource-namespace") // the default
		}
		o["data"] = config
	case "Deployment":
		template := o["spec"].(object)["template"].(object)
		delete(template["metadata"].(object), "annotations")
		pod := template["spec"].(object)
		delete(pod["containers"].([]any)[0].(object), "imagePullPolicy")
		pod["volumes"].([]any)[0].(object)["configMap"].(object)["name"] = ""
	}
	return key
}

// What the values of the chart choose arrives in the objects.
func TestChartValues(t *testing.T) {
	values := map[string]any{
		"config": map[string]any{"cluster-cidr": "10.0.0.0/16", "node-cidr-mask-size-ipv4": 25, "leader-elect-resource-name": "own"},
		"image":  map[string]any{"repository": "r.example/x", "tag": "v1", "pullPolicy": "Always"}, "args": []any{"-v=4"},
		"imagePullSecrets": []any{map[string]any{"name": "secret"}}, "replicas": 2, "address": "0.0.0.0", "port": 1234,
		"monitoring": map[string]any{"serviceMonitor": true, "prometheusRule": true, "dashboard": true, "labels": map[string]any{"release": "prom"}},
	}
	text, err := Chart(controller+"/chart", "default", values)
	if err != nil {
		t.Fatal(err)
	}
	found := objects(t, text) // no two of one name, in the namespace of the events too
	var all bytes.Buffer
	if err := yaml.NewEncoder(&all).Encode(found); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node-cidr-mask-size-ipv4: 25", "leader-elect-resource-namespace: default", "allocate-node-cidrs: true", "image: r.example/x:v1",
		"imagePullPolicy: Always", "- -v=4", "name: secret", "replicas: 2", "hostPort: 1234", "- -http-address=0.0.0.0:1234", "- own\n", "release: prom", "grafana_dashboard: \"1\""} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no %q in\n%s", want, all.String())
		}
	}
	var rules struct{ Groups []any }
	data, err := os.ReadFile(controller + "/chart/monitoring/rules.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &rules)
	}
	got := found["PrometheusRule default node-ipam-controller"]["spec"].(object)["groups"].([]any)
	if err != nil || len(got) != len(rules.Groups) || len(got) == 0 {
		t.Errorf("%d groups of rules, want %d (%v)", len(got), len(rules.Groups), err)
	}
	if found["ServiceMonitor default node-ipam-controller"] == nil || found["ConfigMap default node-ipam-controller-dashboard"] == nil {
		t.Errorf("objects %v", slices.Collect(maps.Keys(found)))
	}
}

// An image is named by its digest, if there is one.
func TestChartDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	found := chart(t, map[string]any{"config": map[string]any{"cluster-cidr": "10.0.0.0/16"},
		"image": map[string]any{"repository": "r.example/x", "digest": digest}, "nodeSelector": map[string]any{}})
	pod := found["Deployment kube-system node-ipam-controller"]["spec"].(object)["template"].(object)["spec"].(object)
	if got := pod["containers"].([]any)[0].(object)["image"]; got != "r.example/x@"+digest {
		t.Errorf("image %v", got)
	}
	if got := pod["nodeSelector"].(object); len(got) != 0 || pod["tolerations"] == nil {
		t.Errorf("a value of the chart leaves nodeSelector %v, tolerations %v", got, pod["tolerations"])
	}
}

// The schema refuses values that cannot be.
func TestChartRefuses(t *testing.T) {
	ranged := map[string]any{"cluster-cidr": "10.0.0.0/16"}
	for want, values := range map[string]map[string]any{
		"cluster-cidr":                    {},
		"confg":                           {"confg": map[string]any{}, "config": ranged},
		"RangeAllocator":                  {"config": map[string]any{"cidr-allocator-type": "Cloud"}},
		"port":                            {"port": 0, "config": ranged},
		"tga":                             {"image": map[string]any{"repository": "x", "tga": "y"}, "config": ranged},
		"digest":                          {"image": map[string]any{"repository": "x", "tag": "y", "digest": "latest"}, "config": ranged},
		"leader-elect-resource-namespace": {"config": map[string]any{"cluster-cidr": "x", "leader-elect-resource-namespace": "x"}},
	} {
		if _, err := Chart(controller+"/chart", "kube-system", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", values, err, want)
		}
	}
}
