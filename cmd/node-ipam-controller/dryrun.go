package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// dryRun prints a line for each node, by name: what it has or would get, and a line
// for each thing that is wrong. Nothing is written to the cluster.
func dryRun(ctx context.Context, w io.Writer, client kubernetes.Interface, c *chooser) error {
	nodes, found, err := c.look(ctx, client)
	if err != nil {
		return err
	}
	problems := map[string][]error{}
	for _, p := range found {
		problems[p.Owner] = append(problems[p.Owner], p)
	}
	has, gets, bad := 0, 0, 0
	for _, n := range nodes {
		wrong := problems[n.Name]
		switch {
		case len(n.Prefixes) > 0:
			has++
			fmt.Fprintf(w, "%s\thas\t%s\n", n.Name, strings.Join(n.Texts, ","))
		case n.Terminating:
			fmt.Fprintf(w, "%s\tis terminating\n", n.Name)
		default:
			as, err := c.allocator.Allocate(n)
			if err != nil {
				wrong = append(wrong, err)
				break
			}
			gets++
			fmt.Fprintf(w, "%s\twould get\t%s\n", n.Name, joined(as))
		}
		for _, err := range wrong {
			bad++
			fmt.Fprintf(w, "%s\tWRONG\t%v\n", n.Name, err)
		}
	}
	for _, p := range c.allocator.Stats().Pools {
		fmt.Fprintf(w, "pool %s: %d of %d would be free\n", strings.TrimSpace(p.Entry+" "+p.Pool.String()), p.Free, p.Capacity)
	}
	if _, err := fmt.Fprintf(w, "%d nodes: %d have CIDRs, %d would get them, %d things are wrong\n", len(nodes), has, gets, bad); err != nil {
		return err
	}
	if bad > 0 {
		return errWrong
	}
	return nil
}

// errWrong says that a dry run has found something wrong, which it has printed.
var errWrong = errors.New("something is wrong")

// look loads the nodes as the controller would at its start, and writes nothing.
func (c *chooser) look(ctx context.Context, client kubernetes.Interface) (nodes []nodeipam.Node, problems []*ipalloc.Error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, start := range c.prepare(func() {}) {
		if err := start(ctx); err != nil {
			return nil, nil, err
		}
	}
	if nodes, err = listNodes(ctx, client); err != nil {
		return nil, nil, err
	}
	problems = c.allocator.Load(nodes)
	c.loaded()
	return nodes, problems, nil
}

// explain prints which ClusterCIDR serves a node, and why no other does.
func explain(ctx context.Context, w io.Writer, client kubernetes.Interface, c *chooser, name string) error {
	nodes, _, err := c.look(ctx, client)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n nodeipam.Node) bool { return n.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no node %q", name)
	}
	x := c.allocator.Explain(nodes[i])
	if _, err := fmt.Fprintln(w, x); err != nil {
		return err
	}
	if x.Held == nil && x.Chosen == "" {
		return errWrong
	}
	return nil
}

func joined(as nodeipam.Assignment) string {
	text := strings.Join(texts(as.Prefixes), ",")
	if as.Entry != "" {
		text += " of " + as.Entry
	}
	return text
}

// listNodes returns all nodes by name. It reads them in pages.
func listNodes(ctx context.Context, client kubernetes.Interface) (nodes []nodeipam.Node, err error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Nodes().List(ctx, o)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(n runtime.Object) error {
		nodes = append(nodes, toNode(n.(*v1.Node)))
		return nil
	})
	slices.SortFunc(nodes, func(a, b nodeipam.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, err
}
