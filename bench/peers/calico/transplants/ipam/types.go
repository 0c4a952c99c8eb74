//go:build transplant

package ipam

import (
	"errors"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/net"
)

const (
	WindowsReservedHandle = "windows-reserved-ipam-handle"

	AttributeNode      = model.IPAMBlockAttributeNode
	AttributeType      = model.IPAMBlockAttributeType
	AttributeTypeVXLAN = model.IPAMBlockAttributeTypeVXLAN
)

var (
	ErrBlockLimit      = errors.New("cannot allocate new block due to per host block limit")
	ErrNoQualifiedPool = errors.New("cannot find a qualified ippool")
	ErrStrictAffinity  = errors.New("global strict affinity should not be false for Windows node")
)

// IPAMAssignments are the addresses of one family.
type IPAMAssignments struct {
	IPs              []net.IPNet
	IPVersion        int
	NumRequested     int
	HostReservedAttr *HostReservedAttr
	Msgs             []string
}
