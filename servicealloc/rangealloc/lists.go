package rangealloc

import (
	"encoding/json"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// objects is a list of ServiceCIDRs or IPAddresses (networking.k8s.io/v1).
type objects struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Kind     string
		Metadata struct{ Name, DeletionTimestamp string }
		Spec     struct {
			CIDRs     []string
			ParentRef struct{ Group, Resource, Namespace, Name string }
		}
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
}

// Lists reads the ServiceCIDRs and the IPAddresses of a cluster, each the output of
// kubectl get -o json. To compare them with a registry, for example one restored from a
// snapshot:
//
//	ranges, grants, err := rangealloc.Lists(serviceCIDRs, ipAddresses)
//	findings := repair.Diff(reg, grants, nil, time.Now())
//
// A finding without a valid Addr is about a
// port; IPAddresses have no ports. Compare ranges with [servicealloc.Registry.Ranges]. A
// range is draining if its object is being deleted or is not ready. The owner of a grant
// is the namespace and the name of its service, joined by a slash; for another resource,
// resource.group/ precedes them.
//
// It fails with [ipalloc.ErrInvalid] for another kind of object, a page of a longer list,
// an address or a prefix that does not parse, and an address without owner or with two.
func Lists(serviceCIDRs, ipAddresses []byte) (ranges []servicealloc.RangeInfo, grants []servicealloc.Grant, err error) {
	cidrs, err := read("ServiceCIDR", serviceCIDRs)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range cidrs.Items {
		r := servicealloc.RangeInfo{Name: o.Metadata.Name, Draining: o.Metadata.DeletionTimestamp != ""}
		for _, c := range o.Status.Conditions {
			r.Draining = r.Draining || c.Type == "Ready" && c.Status == "False"
		}
		for _, text := range o.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, nil, refuse("ServiceCIDR", o.Metadata.Name, "it has a prefix that does not parse")
			}
			r.Prefixes = append(r.Prefixes, p.Masked())
		}
		ranges = append(ranges, r)
	}
	ips, err := read("IPAddress", ipAddresses)
	if err != nil {
		return nil, nil, err
	}
	held, at := map[netip.Addr]bool{}, map[string]int{}
	for _, o := range ips.Items {
		ip, err := netip.ParseAddr(o.Metadata.Name)
		ref := o.Spec.ParentRef
		switch {
		case err != nil:
			return nil, nil, refuse("IPAddress", o.Metadata.Name, "the name is no address")
		case held[ip]:
			return nil, nil, refuse("IPAddress", o.Metadata.Name, "the address is in the list twice")
		case ref.Name == "":
			return nil, nil, refuse("IPAddress", o.Metadata.Name, "the address has no owner")
		}
		held[ip] = true
		owner := ref.Namespace + "/" + ref.Name
		if ref.Resource != "services" || ref.Group != "" {
			owner = ref.Resource + "." + ref.Group + "/" + owner
		}
		if _, there := at[owner]; !there {
			at[owner] = len(grants)
			grants = append(grants, servicealloc.Grant{Owner: owner})
		}
		g := &grants[at[owner]]
		g.Addrs = append(g.Addrs, ip)
	}
	return ranges, grants, nil
}

// read decodes a whole list of objects of one kind.
func read(kind string, text []byte) (l objects, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, refuse(kind, "", "it is no list in JSON")
	}
	if l.Metadata.Continue != "" {
		return l, refuse(kind, "", "it is a page of a longer list")
	}
	for _, o := range l.Items {
		if o.Kind != kind {
			return l, refuse(kind, o.Metadata.Name, "its kind is "+o.Kind)
		}
	}
	return l, nil
}

func refuse(kind, name, why string) error {
	return &ipalloc.Error{Package: "rangealloc", Op: "read list", Field: kind, Text: name, Reason: why, Err: ipalloc.ErrInvalid}
}
