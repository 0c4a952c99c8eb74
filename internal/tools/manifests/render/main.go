// The command render prints the output of Helm or kustomize for a directory:
//
//	render kustomization DIR
//	render chart DIR NAMESPACE [VALUES.yaml]
package main

import (
	"errors"
	"fmt"
	"os"

	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/ipalloc/ipalloc/internal/tools/manifests"
)

func main() {
	out, err := run(os.Args[1:])
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string) ([]byte, error) {
	switch {
	case len(args) == 2 && args[0] == "kustomization":
		return manifests.Kustomization(args[1])
	case len(args) == 3 && args[0] == "chart":
		return manifests.Chart(args[1], args[2], nil)
	case len(args) == 4 && args[0] == "chart":
		values, err := chartutil.ReadValuesFile(args[3])
		if err != nil {
			return nil, err
		}
		return manifests.Chart(args[1], args[2], values)
	}
	return nil, errors.New("want kustomization DIR, or chart DIR NAMESPACE [VALUES.yaml]")
}
