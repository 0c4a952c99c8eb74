package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/addrmap"
)

// The formats of export, and those of import and diff.
var (
	exportFormats = []string{"json", "csv", "host-local", "calico"}
	importFormats = append(slices.Clone(exportFormats), "whereabouts", "go-ipam", "nodes")
)

const formatsHelp = `The formats:
  json         settings, pools, blocks, and addresses with all their holders, as export writes them
  csv          a line for each holder of an address; its first line names the columns, of which only address is needed:
               address,handle,host,attributes,until,alternate,share,shareKey,cooling,reason
  host-local   the directory of a network of the CNI plugin host-local: a file for each address
  calico       IPPool and IPAMBlock objects, as kubectl get ippools,ipamblocks -o yaml prints them
  whereabouts  IPPool objects of whereabouts, as kubectl get ippools.whereabouts.cni.cncf.io -A -o yaml prints
               them; import and diff only
  go-ipam      what the method Dump of metal-stack/go-ipam returns; import and diff only
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
	case "whereabouts":
		inv, err = readWhereabouts(text)
	case "go-ipam":
		inv, err = readGoIPAM(text)
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
	attrPod       = "pod"
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

// whereaboutsPool is the spec of an IPPool of whereabouts. The key of an allocation is its distance
// from the address of the range.
type whereaboutsPool struct {
	Range       string                      `json:"range"`
	Allocations map[string]whereaboutsEntry `json:"allocations"`
}

type whereaboutsEntry struct {
	ID     string `json:"id"`
	PodRef string `json:"podref"`
	IfName string `json:"ifname,omitempty"`
}

func readWhereabouts(text []byte) (*inventory, error) {
	all, err := objects(text, "IPPool")
	if err != nil {
		return nil, err
	}
	inv := &inventory{lacks: lacks{true, true, true, false}}
	for _, o := range all {
		var p whereaboutsPool
		if err := json.Unmarshal(o.Spec, &p); err != nil {
			return nil, fail(exitUsage, "IPPool %s: %v", o.Metadata.Name, err)
		}
		prefix, err := netip.ParsePrefix(p.Range)
		if err != nil {
			return nil, fail(exitUsage, "IPPool %s: %q is no range", o.Metadata.Name, p.Range)
		}
		inv.Pools = append(inv.Pools, poolEntry{Name: o.Metadata.Name, Prefix: prefix.Masked().String(), Subnet: true})
		space := addrmap.Space{Pool: prefix.Masked()}
		keys := make([]string, 0, len(p.Allocations))
		for k := range p.Allocations {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			offset, err := strconv.ParseUint(k, 10, 64)
			if err != nil {
				return nil, fail(exitUsage, "IPPool %s: allocation %q is no number", o.Metadata.Name, k)
			}
			entry := p.Allocations[k]
			e := addressEntry{Address: space.Addr(addr.FromAddr(prefix.Addr()).Add(addr.U128{Lo: offset})).String(), Handle: entry.ID,
				Attributes: map[string]string{attrPod: entry.PodRef}}
			if entry.IfName != "" {
				e.Attributes[attrInterface] = entry.IfName
			}
			inv.Addresses = append(inv.Addresses, e)
		}
	}
	return inv, nil
}

// goIPAMPrefix is an element of what go-ipam dumps.
type goIPAMPrefix struct {
	Cidr                   string
	ParentCidr             string
	Namespace              string
	AvailableChildPrefixes map[string]bool
	ChildPrefixLength      int
	IsParent               bool
	IPs                    map[string]bool
	Version                int64
}

// readGoIPAM reads a dump. A prefix that others were taken of is no pool; go-ipam holds the first address, and the last
// one of IPv4, of each prefix itself, which a pool that is a subnet spares.
func readGoIPAM(text []byte) (*inventory, error) {
	var all []goIPAMPrefix
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fail(exitUsage, "not a dump of go-ipam: %v", err)
	}
	inv := &inventory{lacks: lacks{true, true, true, false}}
	for _, p := range all {
		if p.IsParent || p.ChildPrefixLength > 0 {
			continue
		}
		prefix, err := parsePrefix(p.Cidr)
		if err != nil {
			return nil, err
		}
		inv.Pools = append(inv.Pools, poolEntry{Name: prefix.String(), Prefix: prefix.String(), Subnet: true})
		ips := make([]string, 0, len(p.IPs))
		for ip := range p.IPs {
			ips = append(ips, ip)
		}
		slices.Sort(ips)
		lo, hi := addrmap.Of(prefix)
		for _, text := range ips {
			ip, err := parseAddr(text)
			if err != nil {
				return nil, err
			}
			if n := addr.FromAddr(ip); n == lo || ip.Is4() && n == hi {
				continue
			}
			inv.Addresses = append(inv.Addresses, addressEntry{Address: ip.String()})
		}
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
