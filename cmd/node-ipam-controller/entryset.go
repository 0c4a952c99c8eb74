package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// newLabelled returns the allocator that chooses by labels, without any entry. With
// -cluster-cidr, every entry needs the families of the cluster.
func newLabelled(o *options, reserved []netip.Prefix, more ...nodeipam.Option) (a *nodeipam.Allocator, within []netip.Prefix, err error) {
	c := nodeipam.Config{ByLabels: true, Reserved: reserved}
	if within, err = prefixes("cluster-cidr", o.clusterCIDR); err != nil {
		return nil, nil, err
	}
	for _, f := range strings.Split(o.families, ",") {
		switch strings.ToLower(strings.TrimSpace(f)) {
		case "ipv4":
			c.Families = append(c.Families, nodeipam.IPv4)
		case "ipv6":
			c.Families = append(c.Families, nodeipam.IPv6)
		case "":
		default:
			return nil, nil, fmt.Errorf("-families: %q, want IPv4 or IPv6", f)
		}
	}
	if o.families == "" {
		for _, p := range within {
			f := nodeipam.IPv6
			if p.Addr().Is4() {
				f = nodeipam.IPv4
			}
			if !slices.Contains(c.Families, f) {
				c.Families = append(c.Families, f)
			}
		}
	}
	a, err = nodeipam.New(c, more...)
	return a, within, err
}

// entrySet keeps the entries of an allocator as [entryAPI] reads them.
//
// apply adds an entry that is new. An entry that is missing, or has a
// metadata.deletionTimestamp, serves no further node and is removed with its last node. An
// entry with another spec than before is refused, because entries never change. Until the
// nodes are loaded no node depends on an entry, so any change is applied.
type entrySet struct {
	allocator *nodeipam.Allocator
	log       *slog.Logger
	within    []netip.Prefix // of -cluster-cidr: IPv4 pools lie in one of these

	mu      sync.Mutex
	loaded  bool    // the nodes are: an entry may have some
	entries []entry // as they were applied last
	refused bool    // an object is not in force

	failing map[string]string // what was logged of each object
}

// complain logs what is wrong with an object, once.
func (s *entrySet) complain(what string, err error, message string) {
	if err == nil {
		delete(s.failing, what)
		return
	}
	if s.failing == nil {
		s.failing = map[string]string{}
	}
	if s.failing[what] != err.Error() {
		s.failing[what] = err.Error()
		s.log.Error(message, "of", what, "err", err)
	}
}

// inForce reports whether every object was in force at the last look.
func (s *entrySet) inForce() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.refused
}

// applied reports whether an entry is one of those that were applied last.
func (s *entrySet) applied(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.Name == name })
}

// apply replaces the allocator's entries by entries. It returns an error for each one
// that is refused; the others are in force afterwards.
func (s *entrySet) apply(entries []entry) (added bool, refused map[string]error) {
	s.entries = entries
	wanted := map[string]bool{}
	for _, e := range entries {
		wanted[e.Name] = !s.loaded || !e.deleted
	}
	have := map[string]bool{}
	for e := range s.allocator.Entries() {
		have[e.Name] = true
		if !wanted[e.Name] && !e.Terminating {
			s.remove(e.Name)
		}
	}
	refused = map[string]error{}
	for _, e := range entries {
		if !wanted[e.Name] {
			continue
		}
		err := s.add(&e)
		if errors.Is(err, ipalloc.ErrExists) && !s.loaded {
			s.remove(e.Name)
			have[e.Name] = false
			err = s.add(&e)
		}
		switch {
		case err != nil:
			refused[e.Name] = e.explain(err)
		case !have[e.Name]:
			added = true
			s.log.Info("ClusterCIDR added", "name", e.Name)
		}
	}
	return added, refused
}

func (s *entrySet) add(e *entry) error {
	if len(s.within) > 0 && e.IPv4.IsValid() {
		inside := func(p netip.Prefix) bool { return p.Bits() <= e.IPv4.Bits() && p.Contains(e.IPv4.Addr()) }
		if !slices.ContainsFunc(s.within, inside) {
			return &ipalloc.Error{Package: "node-ipam-controller", Op: "add entry", Field: "IPv4", Prefix: e.IPv4, Name: e.Name,
				Reason: "outside of the pod CIDRs of the cluster, -cluster-cidr", Err: ipalloc.ErrOutOfRange}
		}
	}
	return s.allocator.AddEntry(e.Entry)
}

// remove deletes an entry, which is gone at once if it has no node.
func (s *entrySet) remove(name string) {
	gone, err := s.allocator.DeleteEntry(name)
	if err != nil {
		return // gone by itself a moment ago
	}
	s.log.Info("ClusterCIDR deleted", "name", name, "waits for nodes", !gone)
}

// nodesLoaded deletes the entries whose objects are being deleted. They were added for the
// load, so they keep their nodes.
func (s *entrySet) nodesLoaded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
	for _, e := range s.entries {
		if e.deleted {
			s.remove(e.Name)
		}
	}
}
