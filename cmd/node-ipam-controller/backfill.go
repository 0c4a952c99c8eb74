package main

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// guess sets the ClusterCIDR of a node that has CIDRs and no record of one, such as a node that
// another controller has served. Of the ClusterCIDRs that can contain its CIDRs it takes the one
// that the node's labels choose first. It guesses until the nodes are loaded; then the allocator
// remembers it.
func (s *entrySet) guess(n *nodeipam.Node) {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if loaded || n.Entry != "" || len(n.Prefixes) == 0 {
		return
	}
	entries := map[string]nodeipam.Entry{}
	for e := range s.allocator.Entries() {
		entries[e.Name] = e.Entry
	}
	for _, c := range s.allocator.Explain(*n).Candidates {
		if c.Rank > 0 && mayServe(entries[c.Entry], n) {
			n.Entry = c.Entry
			return
		}
	}
}

// mayServe reports whether all CIDRs of a node are of the size and the pools of an entry.
func mayServe(e nodeipam.Entry, n *nodeipam.Node) bool {
	for _, p := range n.Prefixes {
		pool, mask := e.IPv6, e.MaskIPv6
		if p.Addr().Is4() {
			pool, mask = e.IPv4, e.MaskIPv4
		}
		if mask == 0 {
			mask = p.Addr().BitLen() - e.HostBits
		}
		if !p.IsValid() || p.Bits() != mask || !pool.IsValid() || pool.Bits() > mask || !pool.Contains(p.Addr()) {
			return false
		}
	}
	return true
}

// backfill records the ClusterCIDRs of nodes from when the nodes have been loaded until ctx ends. It
// looks again after a failure, and when there are new ClusterCIDRs, which nodes may have CIDRs of.
func (p *program) backfill(ctx context.Context) {
	for {
		var again <-chan time.Time
		if p.recordEntries(ctx) > 0 {
			again = time.After(askAgain)
		}
		select {
		case <-again:
		case <-p.more:
		case <-ctx.Done():
			return
		}
	}
}

// retry has nodes tried again when there is more to give.
func (p *program) retry() {
	p.controller.Retry()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// recordEntries records the ClusterCIDR of each node that has CIDRs but no record of their
// ClusterCIDR. It returns how many of these writes failed.
func (p *program) recordEntries(ctx context.Context) (failed int) {
	seen := map[string]nodeipam.Node{}
	for _, n := range p.nodes.List() {
		if n.Entry == "" && len(n.Prefixes) > 0 {
			seen[n.Name] = n
		}
	}
	recorded := 0
	for held := range p.chooser.allocator.All() {
		n, ok := seen[held.Name]
		if !ok || held.Entry == "" || !slices.Equal(held.Prefixes, n.Prefixes) {
			continue
		}
		metadata := map[string]any{"annotations": map[string]string{entryAnnotation: held.Entry}}
		if n.UID != "" {
			metadata["uid"] = n.UID
		}
		if err := p.record(ctx, n.Name, metadata); err != nil {
			p.log.Warn("the ClusterCIDR of a node is not recorded", "node", n.Name, "err", err)
			failed++
			if ctx.Err() != nil {
				return failed
			}
			continue
		}
		recorded++
	}
	if recorded > 0 {
		p.log.Info("ClusterCIDRs of nodes recorded", "nodes", recorded)
	}
	return failed
}

// record patches the metadata of a node while no other process may lead.
func (p *program) record(ctx context.Context, node string, metadata map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	ctx, cancel, err := fenced(ctx, p.fence, requestTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = p.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	return err
}
