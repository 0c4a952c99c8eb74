package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/calico"
)

// The formats of export, and those of import and diff.
var (
	exportFormats = []string{"json", "csv", "host-local", "calico"}
	importFormats = append(slices.Clone(exportFormats), "nodes")
)

const formatsHelp = `The formats:
  json         settings, pools, blocks, addresses with all their holders, prefixes, attachments and limits of all spaces, as export writes them
  csv          a line for each holder of an address; its first line names the columns, of which only address is needed; until is a
               time such as 2026-03-01T12:00:00Z, or seconds since 1970, of which 0 and 4294967295 mean never:
               address,handle,host,attributes,until,alternate,share,shareKey,cooling,reason
  host-local   the directory of a network of the CNI plugin host-local: a file for each address
  calico       IPPool, IPAMBlock, IPReservation and IPAMConfig objects in one list, as kubectl get ippools,ipamblocks -o yaml prints them
  nodes        Node objects, as kubectl get nodes -o json prints them: a block for each pod CIDR; import and diff only
A file is refused if it is a page of a longer list or has a second document, a key twice, or a field that is not known.`

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
	if err != nil {
		err = fail(exitUsage, "%v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	inv.text, inv.noOthers = text, format != "json"
	inv.end(a.now())
	return inv, nil
}

// end takes out the addresses and prefixes whose time is over, and notes them.
func (inv *inventory) end(now time.Time) {
	over := func(what, until string) bool {
		at, err := time.Parse(time.RFC3339Nano, until)
		is := until != "" && err == nil && !at.After(now)
		if is {
			inv.over = append(inv.over, what)
		}
		return is
	}
	inv.Addresses = slices.DeleteFunc(inv.Addresses, func(e addressEntry) bool { return over(e.Address, e.Until) })
	inv.Prefixes = slices.DeleteFunc(inv.Prefixes, func(p prefixView) bool { return over(p.Prefix, p.Until) })
	for _, in := range inv.Spaces {
		in.end(now)
	}
}

// The attributes in which an import keeps what ipset has no field for.
const attrInterface = "interface"

// readHostLocal reads the directory of a network. A file is named after its address, with _ for : on
// Windows, and holds the container and, since host-local 0.7, the interface.
func readHostLocal(dir string) (*inventory, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inv := &inventory{lacks: lacks{true, true, true, true, true}}
	for _, f := range files {
		if f.IsDir() {
			return nil, fail(exitUsage, "%s: it has the directory %s, and that of a network has none: name the directory of one network", dir, f.Name())
		}
		ip, err := netip.ParseAddr(strings.ReplaceAll(f.Name(), "_", ":"))
		if own := f.Name() == "lock" || strings.HasPrefix(f.Name(), "last_reserved_ip."); err != nil && own {
			continue
		}
		if err != nil || !f.Type().IsRegular() || ip.Zone() != "" {
			return nil, fail(exitUsage, "%s: %s is no file of host-local", dir, f.Name())
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		ip = ip.Unmap()
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")), "\n")
		if len(lines) > 2 {
			inv.refuse(ip.String(), netipx.IPRangeFrom(ip, ip), fail(exitUsage, "the file has %d lines, and host-local writes two", len(lines)))
			continue
		}
		e := addressEntry{Address: ip.String(), Handle: strings.TrimSpace(lines[0])}
		if len(lines) == 2 {
			e.Attributes = map[string]string{attrInterface: strings.TrimSpace(lines[1])}
		}
		inv.Addresses = append(inv.Addresses, e)
	}
	if len(files) == 0 {
		return nil, fail(exitUsage, "%s: the directory is empty, and host-local leaves a lock in that of a network", dir)
	}
	return inv, nil
}

// calicoPool is the part of Calico's IPPool that has a place here. Its selectors are expressions of a
// language of their own; only all() is taken.
type calicoPool struct {
	CIDR              string   `json:"cidr"`
	BlockSize         int      `json:"blockSize,omitempty"`
	Disabled          bool     `json:"disabled,omitempty"`
	NodeSelector      string   `json:"nodeSelector,omitempty"`
	NamespaceSelector string   `json:"namespaceSelector,omitempty"`
	AllowedUses       []string `json:"allowedUses,omitempty"`
	AssignmentMode    string   `json:"assignmentMode,omitempty"`
}

// The fields of Calico's objects. What is dropped is how packets are routed, and what the other fields say already.
var (
	calicoPoolFields = fields{taken: []string{"cidr", "blockSize", "disabled", "nodeSelector", "namespaceSelector", "allowedUses", "assignmentMode"},
		dropped: []string{"ipipMode", "vxlanMode", "natOutgoing", "disableBGPExport", "ipip", "nat-outgoing"}}
	calicoBlockFields = fields{taken: []string{"cidr", "affinity", "affinityClaimTime", "allocations", "unallocated", "attributes", "sequenceNumber",
		"sequenceNumberForAllocation", "deleted", "hostAffinity"}, dropped: []string{"strictAffinity"}}
	calicoReservationFields = fields{taken: []string{"reservedCIDRs"}}
	calicoConfigFields      = fields{taken: []string{"strictAffinity", "autoAllocateBlocks", "maxBlocksPerHost"}, dropped: []string{"kubeVirtVMAddressPersistence"}}
)

func readCalico(text []byte) (*inventory, error) {
	inv := &inventory{poolFields: []string{"BlockBits", "Disabled", "Manual", "Uses"}}
	all, err := inv.objects(text, "projectcalico.org", "IPPool", "IPAMBlock", "IPReservation", "IPAMConfig", "IPAMConfiguration")
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		switch o.kind {
		case "IPPool":
			err = inv.calicoPool(o)
		case "IPAMBlock":
			err = inv.calicoBlock(o)
		case "IPReservation":
			var r struct{ ReservedCIDRs []string }
			if err = calicoReservationFields.decode(inv, o.kind, o.name, o.spec, &r); err == nil {
				for _, cidr := range r.ReservedCIDRs {
					inv.Reservations = append(inv.Reservations, reservation{Range: cidr, Note: "IPReservation " + o.name})
				}
			}
		default:
			c := struct {
				StrictAffinity     bool
				AutoAllocateBlocks *bool
				MaxBlocksPerHost   int
			}{}
			if err = calicoConfigFields.decode(inv, o.kind, o.name, o.spec, &c); err == nil {
				inv.Config = &configView{Strict: c.StrictAffinity, NoAutoBlocks: c.AutoAllocateBlocks != nil && !*c.AutoAllocateBlocks, MaxBlocksPerHost: c.MaxBlocksPerHost}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return inv, nil
}

// calicoPool reads an IPPool.
func (inv *inventory) calicoPool(o object) error {
	var p calicoPool
	if err := calicoPoolFields.decode(inv, o.kind, o.name, o.spec, &p); err != nil {
		return err
	}
	for _, s := range []struct{ key, field, text, flag string }{
		{"nodeSelector", "node selector", p.NodeSelector, "--nodes"}, {"namespaceSelector", "namespace selector", p.NamespaceSelector, "--namespaces"},
	} {
		if s.text != "" && s.text != "all()" {
			return inv.placed(o.spec, s.key, fail(exitUsage, "IPPool %s: the %s %q has to be rewritten: add the pool with pool add %s --closed first, and leave it out here", o.name, s.field, s.text, s.flag))
		}
	}
	if p.AssignmentMode != "" && p.AssignmentMode != "Automatic" && p.AssignmentMode != "Manual" {
		return inv.placed(o.spec, "assignmentMode", fail(exitUsage, "IPPool %s: the assignmentMode %q is not known", o.name, p.AssignmentMode))
	}
	if _, err := parsePrefix(p.CIDR); err != nil {
		return inv.placed(o.spec, "cidr", fail(exitUsage, "IPPool %s: %v", o.name, err))
	}
	inv.Pools = append(inv.Pools, poolEntry{Name: o.name, Prefix: p.CIDR, BlockBits: p.BlockSize, Disabled: p.Disabled || o.deleting, Manual: p.AssignmentMode == "Manual", Uses: p.AllowedUses})
	return nil
}

// calicoBlock reads an IPAMBlock. One that cannot be taken is refused.
func (inv *inventory) calicoBlock(o object) error {
	var b struct{ CIDR string }
	if err := calicoBlockFields.decode(inv, o.kind, o.name, o.spec, &b); err != nil {
		return err
	}
	p, err := parsePrefix(b.CIDR)
	if err != nil {
		return inv.placed(o.spec, "cidr", fail(exitUsage, "IPAMBlock %s: %v", o.name, err))
	}
	if _, err := calico.Import(o.spec, 0); err != nil {
		inv.refuse("block "+p.String(), netipx.RangeOfPrefix(p), err)
		return nil
	}
	inv.calico = append(inv.calico, o.spec)
	return nil
}

// nodeSpec is the part of a Node's spec that matters.
type nodeSpec struct {
	PodCIDR  string   `json:"podCIDR,omitempty"`
	PodCIDRs []string `json:"podCIDRs,omitempty"`
}

var nodeFields = fields{taken: []string{"podCIDR", "podCIDRs"}, dropped: []string{"providerID", "taints", "unschedulable", "configSource", "externalID"}}

func readNodes(text []byte) (*inventory, error) {
	inv := &inventory{lacks: lacks{noDetails: true}}
	all, err := inv.objects(text, "", "Node")
	if err != nil {
		return nil, err
	}
	of := map[netip.Prefix]string{}
	for _, o := range all {
		var n nodeSpec
		if err := nodeFields.decode(inv, o.kind, o.name, o.spec, &n); err != nil {
			return nil, err
		}
		if n.PodCIDR != "" && !slices.Contains(n.PodCIDRs, n.PodCIDR) {
			n.PodCIDRs = append(n.PodCIDRs, n.PodCIDR)
		}
		for _, text := range n.PodCIDRs {
			p, err := parsePrefix(text)
			if err != nil {
				return nil, inv.placed(o.spec, text, fail(exitUsage, "node %s: %v", o.name, err))
			}
			if other, taken := of[p]; taken && other != o.name {
				inv.refuse("block "+p.String(), netipx.RangeOfPrefix(p), fail(exitConflict, "the nodes %s and %s have it", other, o.name))
				continue
			}
			of[p] = o.name
			inv.Blocks = append(inv.Blocks, blockEntry{p.String(), "host:" + o.name})
		}
	}
	return inv, nil
}

// exists reports whether a path exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil || !os.IsNotExist(err)
}
