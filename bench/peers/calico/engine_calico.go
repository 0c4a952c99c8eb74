package main

import (
	"fmt"
	"net/netip"
	"strings"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
)

// calicoEngine is Calico's client in the works on engines.
type calicoEngine struct {
	*calico
	hosts map[string]bool // those that the store knows
}

func newCalicoEngine(b bapi.Client, pool netip.Prefix) *calicoEngine {
	return &calicoEngine{
		calico: must(newCalico(b, []v3.IPPool{calicoPool("pool", pool.String(), 26)})),
		hosts:  make(map[string]bool),
	}
}

// known stores the node of a host, which is not the client's work.
func (c *calicoEngine) known(host string) {
	if !c.hosts[host] {
		check(c.addHost(host, nil))
		c.hosts[host] = true
	}
}

func (c *calicoEngine) assign(host, handle string, blocks int) (lease, error) {
	got, _, err := c.AutoAssign(bg, ipam.AutoAssignArgs{
		Num4: 1, HandleID: &handle, Hostname: host, IntendedUse: v3.IPPoolAllowedUseWorkload, MaxBlocksPerHost: blocks,
	})
	if err != nil || len(got.IPs) == 0 {
		return lease{}, err
	}
	return lease{text: got.IPs[0].IP.String()}, nil
}

func (c *calicoEngine) release(l lease, handle string) error {
	free, err := c.ReleaseIPs(bg, ipam.ReleaseOptions{Address: l.text, Handle: handle})
	if err == nil && len(free) > 0 {
		err = fmt.Errorf("release %s: it was free", l.text)
	}
	return err
}

func (c *calicoEngine) releaseHandle(handle string) error { return c.ReleaseByHandle(bg, handle) }

// fill writes the records that its calls would leave.
func (c *calicoEngine) fill(block netip.Prefix, owner string, held int) {
	c.known(owner)
	b := newCalicoBlock(netOf(block), nil)
	affinity, handle := "host:"+owner, strings.ReplaceAll(block.String(), "/", "-")
	b.Affinity = &affinity
	if held > 0 {
		must(calicoAutoAssign(&b, held, &handle, owner, nil, true, noReservations{}))
		c.store(model.IPAMHandleKey{HandleID: handle}, &model.IPAMHandle{HandleID: handle, Block: map[string]int{block.String(): held}})
	}
	c.store(model.BlockAffinityKey{CIDR: netOf(block), Host: owner}, &model.BlockAffinity{State: model.StateConfirmed})
	c.store(model.BlockKey{CIDR: netOf(block)}, b.AllocationBlock)
}

func (c *calicoEngine) store(key model.Key, value any) {
	must(c.backend.Apply(bg, &model.KVPair{Key: key, Value: value}))
}

func (c *calicoEngine) drop(host string) {
	err := c.ReleaseHostAffinities(bg, host, true)
	if _, none := err.(cerrors.ErrorResourceDoesNotExist); err != nil && !none {
		panic(err)
	}
}

// fresh has nothing to do: the client keeps nothing.
func (c *calicoEngine) fresh() {}
