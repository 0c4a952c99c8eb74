package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/selector"
)

// The store does not keep the labels of hosts, by which pools select them: the service that owns it knows them. hostLabels are
// those that a person names, because an answer without them would be about other pools than the service's.
type hostLabels struct {
	from string
	cut  bool                         // the list has no end: it may lack hosts
	of   map[string]map[string]string // by host

	inNamespace string            // --namespace
	namespace   map[string]string // that the addresses are for; nil if it is not known
}

const labelsHelp = `Pools may select hosts by labels, which the store does not keep. --labels names a file with the output
of kubectl get nodes -o json or -o yaml, or with a host and its labels on each line, as in "worker-1 zone=a,disk=ssd"; - is standard
input. sweep --unselected needs "# end" as the last line of such a file.`

// labelsFlag gives a command --labels.
func (a *app) labelsFlag(c *cobra.Command) *cobra.Command {
	c.Long = strings.TrimSpace(c.Long + "\n\n" + labelsHelp)
	c.Flags().StringVar(&a.labels.from, "labels", "", "the labels of hosts: a `FILE`, - for standard input")
	return c
}

// namespaceFlag gives a command --namespace.
func (a *app) namespaceFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&a.labels.inNamespace, "namespace", "", "the labels `KEY=VALUE,...` of the namespace that the address is for; \"\" for a namespace without labels")
	return c
}

// loadLabels reads what --labels and --namespace name.
func (a *app) loadLabels(cmd *cobra.Command) (err error) {
	if cmd.Flags().Changed("namespace") {
		if a.labels.namespace, err = parsePairs(a.labels.inNamespace); err != nil {
			return fail(exitUsage, "--namespace: %v", err)
		}
	}
	if a.labels.from == "" {
		return nil
	}
	text, err := a.readFile(a.labels.from)
	if err != nil {
		return err
	}
	lines := strings.TrimSpace(string(text))
	a.labels.cut = !strings.HasPrefix(lines, "{") && !strings.HasPrefix(lines, "apiVersion:") && !strings.HasSuffix("\n"+lines, "\n# end")
	a.labels.of, err = parseLabels(a.labels.from, lines)
	return err
}

// parseLabels reads a list of nodes, or a line for each host.
func parseLabels(file, text string) (map[string]map[string]string, error) {
	of := map[string]map[string]string{}
	if head := strings.TrimSpace(text); strings.HasPrefix(head, "{") || strings.HasPrefix(head, "apiVersion:") {
		var list struct {
			Metadata listMetadata
			Items    []struct {
				Metadata struct {
					Name   string
					Labels map[string]string
				}
			}
		}
		doc, err := oneDocument([]byte(text))
		if err == nil {
			err = json.Unmarshal(doc, &list)
		}
		if err != nil {
			return nil, fail(exitUsage, "%s: %v", file, err)
		}
		for _, n := range list.Items {
			of[n.Metadata.Name] = n.Metadata.Labels
		}
		if len(of) == 0 {
			return nil, fail(exitUsage, "%s: not a list of nodes", file)
		}
		return of, list.Metadata.whole(file)
	}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		labels, err := parsePairs(strings.Join(f[1:], ","))
		if err != nil {
			return nil, fail(exitUsage, "%s:%d: %v", file, n+1, err)
		}
		of[f[0]] = labels
	}
	if len(of) == 0 {
		return nil, fail(exitRefused, "%s: the list of hosts is empty", file)
	}
	return of, nil
}

// parsePairs reads KEY=VALUE,KEY=VALUE.
func parsePairs(text string) (map[string]string, error) {
	m := map[string]string{}
	for _, kv := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not of the form KEY=VALUE", kv)
		}
		m[k] = v
	}
	return m, nil
}

// labelsOf is the function of that name that an engine gets; nil without --labels.
func (a *app) labelsOf() func(alloc.Owner) (map[string]string, bool) {
	if a.labels.of == nil {
		return nil
	}
	return func(o alloc.Owner) (map[string]string, bool) {
		labels, known := a.labels.of[o.Name]
		return labels, known || o.Kind != alloc.Host
	}
}

// anyUse stands for every pool, whether it hands out addresses or not.
const anyUse = ^alloc.Use(0)

// needLabels refuses an answer that depends on labels of hosts or of the namespace that are not known. use is the use of the addresses.
func (a *app) needLabels(ctx context.Context, e *ipset.Engine, use alloc.Use) error {
	all, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		known    bool
		of, flag string
		choose   func(alloc.Pool) bool
	}{
		{a.labels.of != nil, "hosts", "--labels", byLabels},
		{a.labels.namespace != nil || use == anyUse, "the namespace", "--namespace", func(p alloc.Pool) bool { return len(p.Namespaces) > 0 }},
	} {
		var by []string
		for _, p := range all {
			if !l.known && l.choose(p) && (use == anyUse || !p.Disabled && p.Uses&use != 0 && !p.Manual) {
				by = append(by, p.Name)
			}
		}
		if len(by) > 0 {
			return fail(exitUsage, "the labels of %s are not known here, and by them choose the pools %s: name them with %s", l.of, strings.Join(by, ", "), l.flag)
		}
	}
	return nil
}

// byLabels reports whether a pool selects hosts by labels, not by their names alone.
func byLabels(p alloc.Pool) bool {
	return slices.ContainsFunc(p.Nodes, func(t selector.Term) bool { return len(t.Labels) > 0 })
}
