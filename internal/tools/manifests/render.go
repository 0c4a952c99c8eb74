package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Chart renders the chart in a directory for a release in a namespace, as helm template
// --include-crds does: definitions of resources first, then the templates by name.
// Values are checked by the schema of the chart.
func Chart(dir, namespace string, values map[string]any) ([]byte, error) {
	chart, err := loader.LoadDir(dir)
	if err == nil {
		err = chart.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("load chart %s: %w", dir, err)
	}
	release := chartutil.ReleaseOptions{Name: chart.Name(), Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", dir, err)
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", dir, err)
	}
	var out bytes.Buffer
	for _, crd := range chart.CRDObjects() {
		fmt.Fprintf(&out, "---\n%s", crd.File.Data)
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(name) == ".yaml" && strings.TrimSpace(rendered[name]) != "" {
			fmt.Fprintf(&out, "---\n%s", rendered[name])
		}
	}
	return out.Bytes(), nil
}

// Kustomization builds the kustomization in a directory, as kubectl kustomize does.
func Kustomization(dir string) ([]byte, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("build kustomization %s: %w", dir, err)
	}
	return built.AsYaml()
}
