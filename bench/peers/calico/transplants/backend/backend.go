//go:build transplant

// Package backend stands for Calico's datastore: it keeps nodes, and shows the blocks of an engine of ours
// as Calico's records.
package backend

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"sync"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/calico"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Client is the datastore. All clients of the suite share one.
type Client struct {
	bapi.Client // the rest of the interface, which the suite does not use

	mu    sync.Mutex
	Store *store.Memory
	nodes map[string]libapiv3.Node

	// Pending are the blocks that were created by hand.
	Pending []*block.Block
}

var shared = &Client{Store: store.NewMemory(), nodes: map[string]libapiv3.Node{}}

func NewClient(apiconfig.CalicoAPIConfig) (bapi.Client, error) { return shared, nil }

// Node returns the node of that name, if it exists.
func (c *Client) Node(name string) (libapiv3.Node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[name]
	return n, ok
}

// Clean removes the blocks. Calico's also removes the nodes, and assigns a requested address to an unknown
// host.
func (c *Client) Clean() error {
	c.Store = store.NewMemory()
	return nil
}

func (c *Client) Apply(_ context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = maps.Clone(c.nodes)
	c.nodes[kvp.Key.(model.ResourceKey).Name] = kvp.Value.(libapiv3.Node)
	return kvp, nil
}

// Create accepts a block. The next call of a client imports it, once the pools exist.
func (c *Client) Create(_ context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	data, err := json.Marshal(kvp.Value)
	if err != nil {
		return nil, err
	}
	b, err := calico.Import(data, 0)
	c.Pending = append(c.Pending, b)
	return kvp, err
}

// Delete keeps the node: its addresses are released by later specs.
func (c *Client) Delete(context.Context, model.Key, string) (*model.KVPair, error) { return nil, nil }

// List returns all blocks, or the blocks of a host.
func (c *Client) List(ctx context.Context, list model.ListInterface, _ string) (*model.KVPairList, error) {
	e, err := ipset.New(c.Store, ipset.Options{})
	if err != nil {
		return nil, err
	}
	out := &model.KVPairList{}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		data, err := calico.Export(b, 0)
		if err != nil {
			return nil, err
		}
		value := new(model.AllocationBlock)
		if err := json.Unmarshal(data, value); err != nil {
			return nil, err
		}
		cidr := cnet.MustParseNetwork(b.Prefix().String())
		switch opts := list.(type) {
		case model.BlockListOptions:
			if opts.IPVersion == 0 || opts.IPVersion == cidr.Version() {
				out.KVPairs = append(out.KVPairs, &model.KVPair{Key: model.BlockKey{CIDR: cidr}, Value: value})
			}
		case model.BlockAffinityListOptions:
			if b.Owner() != (alloc.Owner{}) && (opts.Host == "" || b.Owner().Name == opts.Host) && (opts.IPVersion == 0 || opts.IPVersion == cidr.Version()) {
				out.KVPairs = append(out.KVPairs, &model.KVPair{Key: model.BlockAffinityKey{CIDR: cidr, Host: b.Owner().Name}})
			}
		}
	}
	return out, nil
}
