package alloc

import (
	"fmt"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// OwnerKind tells whether an owner is a machine.
type OwnerKind uint8

const (
	// Nobody is the kind of the zero [Owner]. A block with this kind of owner is an
	// orphan.
	Nobody OwnerKind = iota
	// Host is a machine.
	Host
	// Virtual is an owner that is not a machine, such as a load balancer's controller.
	Virtual
)

// Owner identifies the owner of a block, or the host that an address is held for. The
// zero value means no owner. Owners are comparable.
type Owner struct {
	Kind OwnerKind
	Name string
}

// HostOwner returns the owner of kind [Host] with that name.
func HostOwner(name string) Owner { return Owner{Host, name} }

// VirtualOwner returns the owner of kind [Virtual] with that name.
func VirtualOwner(name string) Owner { return Owner{Virtual, name} }

// ParseOwner parses the text of [Owner.String]: "host:a", "virtual:b", or "" for no
// owner. It fails with [ipalloc.ErrInvalid] for any other text.
func ParseOwner(s string) (Owner, error) {
	if s == "" {
		return Owner{}, nil
	}
	kind, name, ok := strings.Cut(s, ":")
	if ok && name != "" && kind == "host" {
		return Owner{Host, name}, nil
	}
	if ok && name != "" && kind == "virtual" {
		return Owner{Virtual, name}, nil
	}
	return Owner{}, cause.Wrap(ipalloc.Error{Op: "parse", Field: "owner", Text: s, Reason: "want host:NAME or virtual:NAME", Err: ipalloc.ErrInvalid})
}

// String returns "host:name", "virtual:name" or "".
func (o Owner) String() string {
	switch o.Kind {
	case Host:
		return "host:" + o.Name
	case Virtual:
		return "virtual:" + o.Name
	}
	return ""
}

// Check fails with [ipalloc.ErrInvalid] for the zero owner, an unknown kind and an
// impossible name.
func (o Owner) Check() error {
	if o == (Owner{}) {
		return cause.Wrap(ipalloc.Error{Op: "check", Field: "Owner", Reason: "it is the zero value; name a host or a virtual owner", Err: ipalloc.ErrInvalid})
	}
	if o.Kind != Host && o.Kind != Virtual {
		return cause.Wrap(ipalloc.Error{Op: "check", Field: "Owner", Reason: fmt.Sprintf("unknown kind %d", o.Kind), Err: ipalloc.ErrInvalid})
	}
	return cause.Name("owner", o.Name)
}
