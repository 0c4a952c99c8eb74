package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// newLabelled returns the allocator that chooses by labels, without any entry.
func newLabelled(o *options) (*nodeipam.Allocator, error) {
	c := nodeipam.Config{ByLabels: true}
	var err error
	if c.Reserved, err = prefixes("service-cluster-ip-range", o.serviceCIDRs); err != nil {
		return nil, err
	}
	for _, f := range strings.Split(o.families, ",") {
		switch strings.ToLower(strings.TrimSpace(f)) {
		case "ipv4":
			c.Families = append(c.Families, nodeipam.IPv4)
		case "ipv6":
			c.Families = append(c.Families, nodeipam.IPv6)
		case "":
		default:
			return nil, fmt.Errorf("-families: %q, want IPv4 or IPv6", f)
		}
	}
	return nodeipam.New(c)
}

// entryFile keeps the entries of an allocator as a file says, while the file changes.
//
// An entry that is new in the file is added. One that is gone from it, or has a
// metadata.deletionTimestamp, serves nobody any more, and is gone with its last node.
// One that says something else than before is refused: entries never change. Before
// the nodes are loaded there is nobody to mind, and the file is simply followed.
type entryFile struct {
	path      string
	allocator *nodeipam.Allocator
	log       *slog.Logger

	mu      sync.Mutex
	loaded  bool // the nodes are: an entry may have some
	seen    []byte
	settled bool // what was seen is in force
	entries []entry
	failing string // what was wrong at the last look
}

// openEntries reads the file and adds its entries. Unlike later, an error is final.
func openEntries(path string, a *nodeipam.Allocator, log *slog.Logger) (*entryFile, error) {
	f := &entryFile{path: path, allocator: a, log: log}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f.seen = data
	if _, err := f.apply(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.settled = true
	return f, nil
}

// follow looks at the file again and again until ctx ends, and calls added when there
// are new entries.
func (f *entryFile) follow(ctx context.Context, period time.Duration, added func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if f.look() {
				added()
			}
		case <-ctx.Done():
			return
		}
	}
}

// look reads the file once and reports whether there are new entries. It applies what
// the look before has seen too: what only one has seen may be half written. What can't
// be applied is tried again, as what stands in its way may go: the last node of an
// entry of the same name.
func (f *entryFile) look() (added bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := os.ReadFile(f.path)
	switch {
	case err == nil && !bytes.Equal(data, f.seen):
		f.seen, f.settled = data, false
		return false
	case err == nil && !f.settled:
		added, err = f.apply()
		f.settled = err == nil
	}
	f.complain(err)
	return added
}

// complain logs what is wrong, once.
func (f *entryFile) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.failing {
		f.log.Error("the file of ClusterCIDRs is not in force, or not all of it", "file", f.path, "err", err)
	}
	f.failing = text
}

// inForce reports whether the file that was seen last is.
func (f *entryFile) inForce() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled && f.failing == ""
}

// apply makes the allocator's entries those of the file as it was seen. A file that
// can't be read as a whole changes nothing; of one with entries that are refused, the
// others are in force afterwards.
func (f *entryFile) apply() (added bool, err error) {
	entries, err := parseEntries(f.seen)
	if err != nil {
		return false, err
	}
	f.entries = entries
	wanted := map[string]bool{}
	for _, e := range entries {
		wanted[e.Name] = !f.loaded || !e.deleted
	}
	have := map[string]bool{}
	for e := range f.allocator.Entries() {
		have[e.Name] = true
		if !wanted[e.Name] && !e.Terminating {
			f.remove(e.Name)
		}
	}
	var refused []error
	for _, e := range entries {
		if !wanted[e.Name] {
			continue
		}
		err := f.allocator.AddEntry(e.Entry)
		if errors.Is(err, ipalloc.ErrExists) && !f.loaded {
			f.remove(e.Name)
			have[e.Name] = false
			err = f.allocator.AddEntry(e.Entry)
		}
		switch {
		case err != nil:
			refused = append(refused, e.explain(err))
		case !have[e.Name]:
			added = true
			f.log.Info("ClusterCIDR added", "name", e.Name)
		}
	}
	return added, errors.Join(refused...)
}

// remove deletes an entry, which is gone at once if it has no node.
func (f *entryFile) remove(name string) {
	gone, err := f.allocator.DeleteEntry(name)
	if err != nil {
		return // gone by itself a moment ago
	}
	f.log.Info("ClusterCIDR deleted", "name", name, "waits for nodes", !gone)
}

// nodesLoaded deletes the entries that the file says are deleted. They were there until
// the nodes had been loaded, so they keep their nodes.
func (f *entryFile) nodesLoaded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loaded = true
	for _, entry := range f.entries {
		if entry.deleted {
			f.remove(entry.Name)
		}
	}
}
