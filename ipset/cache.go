package ipset

import (
	"fmt"
	"net/netip"
	"strings"
)

// entry is what is known of one record: the revision at which it was read or written, 0 if it did not exist. guarded
// and dirty are the number of the transaction that relies upon it or changes it.
type entry struct {
	key            string
	rev            uint64
	guarded, dirty uint64
}

type catalogEntry struct {
	entry
	*catalog
}

type blockEntry struct {
	entry
	at      netip.Prefix
	*Block             // nil if there is none
	was     blockIndex // what the index records say
	touches []touch    // handles that came or left since
	keys    [3]string  // of the room, empty and orphan records
	spans   []span     // ordinals that automatic assignment may not take, by the catalog of
	of      *catalog
}

// indexKey returns the key of one of the block's index records; those of the block are built once.
func (be *blockEntry) indexKey(kind string) string {
	var k *string
	switch kind {
	case kindRoom:
		k = &be.keys[0]
	case kindEmpty:
		k = &be.keys[1]
	default:
		k = &be.keys[2]
	}
	if *k == "" {
		*k = blockKey(kind, be.at)
	}
	return *k
}

// set makes b the block of the entry.
func (be *blockEntry) set(b *Block) {
	be.Block, be.of = b, nil
	if b != nil {
		b.touched = &be.touches
	}
}

type ownerEntry struct {
	entry
	blocks []netip.Prefix // in address order
}

type pageEntry struct {
	entry
	page
}

// cache is what an engine has read. It is good until a commit finds otherwise.
type cache struct {
	catalog *catalogEntry
	blocks  map[netip.Prefix]*blockEntry
	owners  map[Owner]*ownerEntry
	pages   map[pageID]*pageEntry
}

func newCache() cache {
	return cache{blocks: map[netip.Prefix]*blockEntry{}, owners: map[Owner]*ownerEntry{}, pages: map[pageID]*pageEntry{}}
}

// trim forgets records of any kind that has more than limit. Which ones is chance and changes no answer.
func (c *cache) trim(limit int) {
	trimMap(c.blocks, limit)
	trimMap(c.owners, limit)
	trimMap(c.pages, limit)
}

func trimMap[K comparable, V any](m map[K]V, limit int) {
	if len(m) <= limit {
		return // a range would cost more than all the rest
	}
	for k := range m {
		if delete(m, k); len(m) <= limit {
			return
		}
	}
}

// forget drops the record of a key.
func (c *cache) forget(key string) {
	switch key[:1] {
	case kindCatalog:
		c.catalog = nil
	case kindBlock:
		if p, ok := parseBlockID(key[1:]); ok {
			delete(c.blocks, p)
		}
	case kindOwner:
		if o, ok := parseOwnerKey(key); ok {
			delete(c.owners, o)
		}
	case kindPage:
		if id, ok := parsePageKey(key); ok {
			delete(c.pages, id)
		}
	}
}

// put keeps a record that was read.
func (c *cache) put(r Record) error {
	e := entry{key: r.Key, rev: r.Rev}
	switch r.Key[:1] {
	case kindCatalog:
		cat, err := decodeCatalog(r.Value)
		if err != nil {
			return err
		}
		c.catalog = &catalogEntry{e, cat}
	case kindBlock:
		p, ok := parseBlockID(r.Key[1:])
		if !ok {
			return fmt.Errorf("%w: key %q", ErrRecord, r.Key)
		}
		be := &blockEntry{entry: e, at: p}
		if r.Rev != 0 {
			b, err := DecodeBlock(r.Value)
			if err == nil && b.prefix != p {
				err = fmt.Errorf("%w: block %s", ErrRecord, b.prefix)
			}
			if err != nil {
				return &Error{Op: "read", Prefix: p, Err: err}
			}
			be.set(b)
			be.was = b.index()
		}
		c.blocks[p] = be
	case kindOwner:
		o, ok := parseOwnerKey(r.Key)
		if !ok {
			return fmt.Errorf("%w: key %q", ErrRecord, r.Key)
		}
		blocks, err := decodeOwner(r.Value)
		if err != nil {
			return &Error{Op: "read", Owner: o.String(), Err: err}
		}
		c.owners[o] = &ownerEntry{e, blocks}
	case kindPage:
		id, ok := parsePageKey(r.Key)
		p, err := decodePage(r.Value)
		if err != nil || !ok {
			return fmt.Errorf("%w: space page %q", ErrRecord, r.Key)
		}
		c.pages[id] = &pageEntry{e, p}
	}
	return nil
}

// blockIndex is what the index records of a block say beside those of its handles: a function of the block.
type blockIndex struct {
	room, empty, orphan bool
	ready               int64 // with room: 0 if an address is free, else when the first has cooled
	since               int64 // with empty
	due                 int64 // when time next changes the block; 0 is never
}

// index derives the index records. It may not depend on the present time, or it could not be checked.
func (b *Block) index() blockIndex {
	x := blockIndex{due: b.lease}
	if len(b.cool) > 0 {
		_, s := b.look(b.cool[0])
		x.ready = s.until
		if x.due == 0 || x.ready < x.due {
			x.due = x.ready
		}
	}
	if x.room = !b.free.empty() || len(b.cool) > 0; !b.free.empty() {
		x.ready = 0
	}
	x.orphan = x.room && b.owner.Kind == Nobody
	if x.empty = b.isEmpty() && b.owner.Kind != Nobody; x.empty {
		x.since = b.since
	}
	return x
}

// parseOwnerKey is the inverse of ownerKey.
func parseOwnerKey(key string) (Owner, bool) {
	if len(key) < 3 || key[1] != '0'+byte(Host) && key[1] != '0'+byte(Virtual) {
		return Owner{}, false
	}
	return Owner{OwnerKind(key[1] - '0'), key[2:]}, true
}

const ownerVersion = 1

// encodeOwner returns the record of an owner's blocks.
func encodeOwner(blocks []netip.Prefix) string {
	b := make([]byte, 0, 1+18*len(blocks))
	b = append(b, ownerVersion)
	for _, p := range blocks {
		b = appendBlockID(b, p)
	}
	return string(b)
}

func decodeOwner(s string) ([]netip.Prefix, error) {
	if s == "" {
		return nil, nil
	}
	bad := fmt.Errorf("%w: list of blocks", ErrRecord)
	if s[0] != ownerVersion {
		return nil, bad
	}
	var blocks []netip.Prefix
	for s = s[1:]; s != ""; {
		n := 18
		if strings.HasPrefix(s, "4") {
			n = 6
		}
		if len(s) < n {
			return nil, bad
		}
		p, ok := parseBlockID(s[:n])
		if !ok || len(blocks) > 0 && comparePrefix(blocks[len(blocks)-1], p) >= 0 {
			return nil, bad
		}
		blocks, s = append(blocks, p), s[n:]
	}
	return blocks, nil
}

// comparePrefix orders prefixes as their block keys are ordered.
func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
