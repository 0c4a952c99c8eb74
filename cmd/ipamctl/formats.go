package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The formats of export, and those of import and diff.
var (
	exportFormats = []string{"json", "csv", "host-local", "calico"}
	importFormats = append(slices.Clone(exportFormats), "nodes")
)

const formatsHelp = `The formats:
  json         settings, pools, blocks, and addresses with all their holders, as export writes them
  csv          a line for each holder of an address; its first line names the columns, of which only address is needed:
               address,handle,host,attributes,until,alternate,share,shareKey,cooling,reason
  host-local   the directory of a network of the CNI plugin host-local: a file for each address
  calico       IPPool and IPAMBlock objects, as kubectl get ippools,ipamblocks -o yaml prints them
  nodes        Node objects, as kubectl get nodes -o json prints them: a block for each pod CIDR; import and diff only`

// readInventory reads a file, or a directory with host-local.
func (a *app) readInventory(format, name string) (*inventory, error) {
	if format == "host-local" {
		return readHostLocal(name)
	}
	text, err := a.readFile(name)
	if err != nil {
		return nil, err
	}
	var inv *inventory
	switch format {
	case "json":
		inv = new(inventory)
		err = strict(text, inv)
	case "csv":
		inv, err = readCSV(text)
	case "calico":
		inv, err = readCalico(text)
	case "nodes":
		inv, err = readNodes(text)
	}
	if err != nil && statusOf(err) == exitUnavailable {
		err = fail(exitUsage, "%v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return inv, nil
}

// strict decodes JSON or YAML and refuses fields that it does not know.
func strict(text []byte, v any) error { return yaml.UnmarshalStrict(text, v) }

// lenient decodes JSON or YAML and passes over fields that it does not know.
func lenient(text []byte, v any) error { return yaml.Unmarshal(text, v) }

// The attributes in which an import keeps what ipset has no field for.
const (
	attrInterface = "interface"
)

// readHostLocal reads the directory of a network. A file is named after its address, with _ for : on
// Windows, and holds the container and, since host-local 0.7, the interface.
func readHostLocal(dir string) (*inventory, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inv := &inventory{lacks: lacks{true, true, true, false}}
	for _, f := range files {
		ip, err := netip.ParseAddr(strings.ReplaceAll(f.Name(), "_", ":"))
		if err != nil || !f.Type().IsRegular() {
			continue // lock and last_reserved_ip.N
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		container, iface, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		e := addressEntry{Address: ip.String(), Handle: strings.TrimSpace(container)}
		if iface = strings.TrimSpace(iface); iface != "" {
			e.Attributes = map[string]string{attrInterface: iface}
		}
		inv.Addresses = append(inv.Addresses, e)
	}
	return inv, nil
}

// object is a Kubernetes object, or a list of them.
type object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name,omitempty"`
		Namespace string `json:"namespace,omitempty"`
	} `json:"metadata"`
	Spec  json.RawMessage `json:"spec,omitempty"`
	Items []object        `json:"items,omitempty"`
}

// objects reads YAML or JSON: objects, lists of them, several documents. want are their kinds.
func objects(text []byte, want ...string) (all []object, err error) {
	var add func(o object) error
	add = func(o object) error {
		if strings.HasSuffix(o.Kind, "List") {
			for _, item := range o.Items {
				if item.Kind == "" {
					item.Kind = strings.TrimSuffix(o.Kind, "List")
				}
				if err := add(item); err != nil {
					return err
				}
			}
			return nil
		}
		if !slices.Contains(want, o.Kind) {
			return fail(exitUsage, "an object of kind %q; %s is expected", o.Kind, strings.Join(want, " or "))
		}
		all = append(all, o)
		return nil
	}
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			return nil, fail(exitUsage, "%v", err)
		}
		if err := add(o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// calicoPool is the part of Calico's IPPool that has a place here. Its selectors are expressions of a
// language of their own; only all() is taken.
type calicoPool struct {
	CIDR         string   `json:"cidr"`
	BlockSize    int      `json:"blockSize,omitempty"`
	Disabled     bool     `json:"disabled,omitempty"`
	NodeSelector string   `json:"nodeSelector,omitempty"`
	AllowedUses  []string `json:"allowedUses,omitempty"`
}

func readCalico(text []byte) (*inventory, error) {
	all, err := objects(text, "IPPool", "IPAMBlock")
	if err != nil {
		return nil, err
	}
	inv := &inventory{}
	for _, o := range all {
		if o.Kind == "IPAMBlock" {
			inv.calico = append(inv.calico, o.Spec)
			continue
		}
		var p calicoPool
		if err := json.Unmarshal(o.Spec, &p); err != nil {
			return nil, fail(exitUsage, "IPPool %s: %v", o.Metadata.Name, err)
		}
		if p.NodeSelector != "" && p.NodeSelector != "all()" {
			return nil, fail(exitUsage, "IPPool %s: the node selector %q has to be rewritten: add the pool with pool add --nodes first, and leave it out here", o.Metadata.Name, p.NodeSelector)
		}
		inv.Pools = append(inv.Pools, poolEntry{Name: o.Metadata.Name, Prefix: p.CIDR, BlockBits: p.BlockSize, Disabled: p.Disabled, Uses: p.AllowedUses})
	}
	return inv, nil
}

// nodeSpec is the part of a Node's spec that matters.
type nodeSpec struct {
	PodCIDR  string   `json:"podCIDR,omitempty"`
	PodCIDRs []string `json:"podCIDRs,omitempty"`
}

func readNodes(text []byte) (*inventory, error) {
	all, err := objects(text, "Node")
	if err != nil {
		return nil, err
	}
	inv := &inventory{lacks: lacks{noDetails: true}}
	for _, o := range all {
		var n nodeSpec
		if len(o.Spec) > 0 {
			if err := json.Unmarshal(o.Spec, &n); err != nil {
				return nil, fail(exitUsage, "node %s: %v", o.Metadata.Name, err)
			}
		}
		if len(n.PodCIDRs) == 0 && n.PodCIDR != "" {
			n.PodCIDRs = []string{n.PodCIDR}
		}
		for _, p := range n.PodCIDRs {
			inv.Blocks = append(inv.Blocks, blockEntry{p, "host:" + o.Metadata.Name})
		}
	}
	return inv, nil
}

// exists reports whether a path exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil || !os.IsNotExist(err)
}
