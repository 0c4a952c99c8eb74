package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/calico"
)

func (a *app) exportCommand() *cobra.Command {
	var format, to, in string
	c := &cobra.Command{
		Use: "export", Args: cobra.NoArgs,
		Short: "Write pools, blocks and addresses in another program's form",
		Long: "export writes settings, pools, blocks, every holder of every address, and what cools. Sequence numbers, request keys, what\n" +
			"sticky handles had last and records of other programs are not part of it: to keep everything, use backup or copy. host-local is a directory and needs --to.\n\n" + formatsHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(exportFormats, format) {
				return fail(exitUsage, "--format %s: the formats are %s", format, strings.Join(exportFormats, ", "))
			}
			if to != "" && format != "host-local" && exists(to) {
				return fail(exitConflict, "%s exists", to)
			}
			if format == "host-local" && to == "" {
				return fail(exitUsage, "host-local is a directory: name one with --to")
			}
			within, err := flagPrefix(in)
			switch {
			case err != nil:
				return err
			case in != "" && format == "calico":
				return fail(exitUsage, "--in: the format calico is of whole pools")
			}
			return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				defer a.progress("exporting")()
				return a.export(ctx, e, format, to, within)
			})
		},
	}
	c.Flags().StringVar(&format, "format", "json", "the `FORMAT`: "+strings.Join(exportFormats, ", "))
	c.Flags().StringVar(&in, "in", "", "export only what lies in this `PREFIX`")
	c.Flags().StringVar(&to, "to", "", "write to this `FILE`, or directory, instead of standard output")
	return c
}

func (a *app) export(ctx context.Context, e *ipset.Engine, format, to string, in netip.Prefix) error {
	inv, err := take(ctx, e)
	if err != nil {
		return err
	}
	inv.keep(in)
	var text []byte
	switch format {
	case "host-local":
		return writeHostLocal(to, inv)
	case "json":
		text, err = indented(inv)
	case "csv":
		text, err = csvOf(inv)
	case "calico":
		text, err = calicoOf(ctx, e)
	case "nodes":
		text, err = nodesOf(inv)
	}
	if err != nil {
		return err
	}
	if to == "" {
		_, err = a.stdout.Write(text)
		return err
	}
	return create(to, text)
}

// create writes a file that does not exist yet. One that cannot be written to its end does not stay.
func create(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func indented(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}

// writeHostLocal writes a file for each address that is held into a directory that must be new or empty. A file has one holder, so
// an address with several is refused.
func writeHostLocal(dir string, inv *inventory) error {
	held := map[string]bool{}
	for _, e := range inv.Addresses {
		if held[e.Address] && !e.Cooling {
			return fail(exitRefused, "%s has several holders, and a file of host-local has a place for one", e.Address)
		}
		held[e.Address] = !e.Cooling
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return fail(exitRefused, "%s is not empty", dir)
	}
	for _, e := range inv.Addresses {
		if e.Cooling {
			continue // nobody has it
		}
		iface := e.Attributes[attrInterface]
		if iface == "" {
			iface = "eth0"
		}
		if err := create(filepath.Join(dir, e.Address), []byte(e.Handle+"\r\n"+iface)); err != nil {
			return err
		}
	}
	return nil
}

// manifest is an object to write.
type manifest struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       any            `json:"spec"`
}

// manifests writes objects as YAML documents.
func manifests(all []manifest) ([]byte, error) {
	var out bytes.Buffer
	for i, m := range all {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := yaml.Marshal(m)
		if err != nil {
			return nil, err
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// objectName makes the name of an object of a prefix, as Calico does.
func objectName(p string) string { return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p) }

const calicoVersion = "crd.projectcalico.org/v1"

func calicoOf(ctx context.Context, e *ipset.Engine) ([]byte, error) {
	pools, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	var all []manifest
	for _, p := range pools {
		if len(p.Nodes) > 0 {
			return nil, fail(exitRefused, "pool %s: Calico's selectors are a language of their own; %q has to be rewritten", p.Name, selectorText(p.Nodes))
		}
		spec := calicoPool{CIDR: p.Prefix.String(), BlockSize: p.BlockBits, Disabled: p.Disabled, NodeSelector: "all()"}
		for _, use := range []struct {
			use  alloc.Use
			name string
		}{{alloc.Workload, "Workload"}, {alloc.Tunnel, "Tunnel"}, {alloc.LoadBalancer, "LoadBalancer"}} {
			if p.Uses&use.use != 0 {
				spec.AllowedUses = append(spec.AllowedUses, use.name)
			}
		}
		all = append(all, manifest{calicoVersion, "IPPool", map[string]any{"name": p.Name}, spec})
	}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		raw, err := calico.Export(b, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, manifest{calicoVersion, "IPAMBlock", map[string]any{"name": objectName(b.Prefix().String())}, json.RawMessage(raw)})
	}
	return manifests(all)
}

func nodesOf(inv *inventory) ([]byte, error) {
	cidrs := map[string][]string{}
	var names []string
	for _, b := range inv.Blocks {
		o, err := alloc.ParseOwner(b.Owner)
		if err != nil || o.Kind != alloc.Host {
			continue
		}
		if cidrs[o.Name] == nil {
			names = append(names, o.Name)
		}
		cidrs[o.Name] = append(cidrs[o.Name], b.Block)
	}
	slices.Sort(names)
	items := []manifest{}
	for _, name := range names {
		items = append(items, manifest{"v1", "Node", map[string]any{"name": name}, nodeSpec{PodCIDR: cidrs[name][0], PodCIDRs: cidrs[name]}})
	}
	return indented(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
