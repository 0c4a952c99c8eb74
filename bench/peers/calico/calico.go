package main

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"strings"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	calicooptions "github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/sirupsen/logrus"
)

var bg = context.Background()

// quiet keeps Calico's client from formatting what nobody reads; call it first.
func quiet() {
	logrus.SetOutput(io.Discard)
	logrus.SetLevel(logrus.PanicLevel)
}

// calico is Calico's client on some backend. What its product reads from the datastore on every call, pools and
// reservations, is at hand here: that is fewer calls than it makes.
type calico struct {
	ipam.Interface
	backend  bapi.Client
	pools    []v3.IPPool // by name
	reserved []string
}

// newCalico returns a client with pools and hosts without labels.
func newCalico(b bapi.Client, pools []v3.IPPool, hosts ...string) (*calico, error) {
	c := &calico{backend: b, pools: pools}
	c.Interface = ipam.NewIPAMClient(b, c, (*calicoReservations)(c))
	// Its first call would write this.
	if _, err := b.Apply(bg, &model.KVPair{Key: model.IPAMConfigKey{}, Value: &model.IPAMConfig{AutoAllocateBlocks: true}}); err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if err := c.addHost(h, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// addHost stores a node, which every assignment reads.
func (c *calico) addHost(name string, labels map[string]string) error {
	n := libapiv3.NewNode()
	n.Name, n.Labels = name, labels
	_, err := c.backend.Apply(bg, &model.KVPair{Key: model.ResourceKey{Kind: libapiv3.KindNode, Name: name}, Value: n})
	return err
}

// calicoPool returns a pool as Calico's API returns it, with the defaults filled in.
func calicoPool(name, cidr string, blockSize int) v3.IPPool {
	p := v3.IPPool{}
	p.Name = name
	p.Spec = v3.IPPoolSpec{CIDR: cidr, BlockSize: blockSize, AllowedUses: []v3.IPPoolAllowedUse{v3.IPPoolAllowedUseWorkload, v3.IPPoolAllowedUseTunnel}}
	return p
}

// GetEnabledPools implements the interface through which the client asks for pools.
func (c *calico) GetEnabledPools(version int) ([]v3.IPPool, error) {
	var list []v3.IPPool
	for _, p := range c.pools {
		if !p.Spec.Disabled && strings.Contains(p.Spec.CIDR, ":") == (version == 6) {
			list = append(list, p)
		}
	}
	return list, nil
}

// GetAllPools implements the interface through which the client asks for pools.
func (c *calico) GetAllPools() ([]v3.IPPool, error) { return slices.Clone(c.pools), nil }

// calicoReservations is a calico in the role of the source of reservations.
type calicoReservations calico

// List returns one object with all reservations.
func (r *calicoReservations) List(context.Context, calicooptions.ListOptions) (*v3.IPReservationList, error) {
	list := &v3.IPReservationList{}
	if len(r.reserved) > 0 {
		list.Items = []v3.IPReservation{{Spec: v3.IPReservationSpec{ReservedCIDRs: r.reserved}}}
	}
	return list, nil
}

// addrOf returns an address in the form of net/netip.
func addrOf(ip cnet.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip.IP)
	return a.Unmap()
}

// prefixOf returns a network in the form of net/netip.
func prefixOf(n cnet.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(cnet.IP{IP: n.IP}), bits)
}

// netOf returns a prefix in Calico's form.
func netOf(p netip.Prefix) cnet.IPNet { return cnet.MustParseNetwork(p.String()) }
