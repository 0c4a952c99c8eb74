package ipset

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// entry is what is known of one record: the revision at which it was read or written, 0 if it did not exist. guarded,
// dirty and read are the number of the transaction that last relied upon it, changed it or read it.
type entry struct {
	key            string
	rev            uint64
	guarded, dirty uint64
	read           uint64
}

type catalogEntry struct {
	entry
	*catalog
}

type blockEntry struct {
	entry
	at           netip.Prefix
	codec        addr.Codec
	*block.Block               // nil if there is none
	shown        blockIndex    // what the index records say
	changes      block.Changes // what the address records say where they may differ
	keys         [3]string     // of the room, empty and orphan records
	spans        []block.Span  // ordinals that automatic assignment may not take, by the catalog of
	of           *catalog
	// advanced is the transaction that has applied to the block what the present time changes.
	advanced uint64
}

// newBlockEntry returns the entry of a block that does not exist.
func newBlockEntry(e entry, p netip.Prefix) (*blockEntry, error) {
	codec, err := addr.NewCodec(p, p.Addr().BitLen())
	if err != nil {
		return nil, fmt.Errorf("%w: block %s has more than 2^64 addresses", errBadBlockSize, p)
	}
	return &blockEntry{entry: e, at: p, codec: codec}, nil
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
func (be *blockEntry) set(b *block.Block) {
	be.Block, be.of = b, nil
	if b != nil {
		b.Track(&be.changes)
	}
}

type ownerEntry struct {
	entry
	blocks blockList
}

type pageEntry struct {
	entry
	page
}

// cache is what an engine has read. It is good until a commit finds otherwise.
type cache struct {
	catalog *catalogEntry
	blocks  kept[netip.Prefix, blockEntry]
	owners  kept[Owner, ownerEntry]
	pages   kept[pageID, pageEntry]
}

func newCache() cache {
	return cache{blocks: newKept[netip.Prefix, blockEntry](), owners: newKept[Owner, ownerEntry](), pages: newKept[pageID, pageEntry]()}
}

// age lets go of what has not been used for long. What a transaction has read stays until the next one begins.
func (c *cache) age(limit int) {
	c.blocks.age(limit)
	c.owners.age(limit)
	c.pages.age(limit)
}

// kept is records of one kind in two generations. What is used is or becomes young; when the young are as many as the
// limit they become the old, and the old that were not used meanwhile are forgotten. So the last limit records used are
// kept, and about twice as many at most; which ones follows from the calls alone. While all that is used is young, nothing
// moves; the maps change places and keep their memory.
type kept[K comparable, V any] struct{ young, old map[K]*V }

func newKept[K comparable, V any]() kept[K, V] { return kept[K, V]{map[K]*V{}, map[K]*V{}} }

// get returns what is kept under a key, or nil.
func (c *kept[K, V]) get(k K) *V {
	v, ok := c.young[k]
	if ok || len(c.old) == 0 {
		return v
	}
	if v, ok = c.old[k]; ok {
		delete(c.old, k)
		c.young[k] = v
	}
	return v
}

func (c *kept[K, V]) put(k K, v *V) {
	delete(c.old, k)
	c.young[k] = v
}

func (c *kept[K, V]) drop(k K) {
	delete(c.young, k)
	delete(c.old, k)
}

// age begins a new generation if the present one is complete.
func (c *kept[K, V]) age(limit int) {
	if len(c.young) >= limit {
		clear(c.old)
		c.young, c.old = c.old, c.young
	}
}

// forget drops the record of a key.
func (c *cache) forget(key string) {
	switch key[:1] {
	case kindCatalog:
		c.catalog = nil
	case kindBlock:
		if p, ok := parseBlockID(key[1:]); ok {
			c.blocks.drop(p)
		}
	case kindOwner:
		if o, ok := parseOwnerKey(key); ok {
			c.owners.drop(o)
		}
	case kindPage:
		if id, ok := parsePageKey(key); ok {
			c.pages.drop(id)
		}
	}
}

// entry returns what is known of the record of a key, nil for nothing.
func (c *cache) entry(key string) *entry {
	switch key[:1] {
	case kindCatalog:
		if c.catalog != nil {
			return &c.catalog.entry
		}
	case kindBlock:
		if p, ok := parseBlockID(key[1:]); ok {
			if be := c.blocks.get(p); be != nil {
				return &be.entry
			}
		}
	case kindOwner:
		if o, ok := parseOwnerKey(key); ok {
			if oe := c.owners.get(o); oe != nil {
				return &oe.entry
			}
		}
	case kindPage:
		if id, ok := parsePageKey(key); ok {
			if pe := c.pages.get(id); pe != nil {
				return &pe.entry
			}
		}
	}
	return nil
}

// put keeps a record that was read by a transaction.
func (c *cache) put(r store.Record, by uint64) error {
	e := entry{key: r.Key, rev: r.Rev, read: by}
	switch r.Key[:1] {
	case kindBlock:
		p, ok := parseBlockID(r.Key[1:])
		if !ok {
			return fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
		}
		be, err := newBlockEntry(e, p)
		if err != nil {
			return err
		}
		if r.Rev != 0 {
			b, err := block.Decode(p, r.Value)
			if err != nil {
				return wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
			}
			be.set(b)
			be.shown = indexOf(b)
		}
		c.blocks.put(p, be)
	case kindOwner:
		o, ok := parseOwnerKey(r.Key)
		if !ok {
			return fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
		}
		blocks, err := decodeList(r.Value)
		if err != nil {
			return wrap(ipalloc.Error{Op: "read", Owner: o.String(), Err: err})
		}
		c.owners.put(o, &ownerEntry{entry: e, blocks: blocks})
	case kindPage:
		id, ok := parsePageKey(r.Key)
		p, err := decodePage(r.Value)
		if err != nil || !ok {
			return fmt.Errorf("%w: space page %q", ipalloc.ErrCorrupt, r.Key)
		}
		c.pages.put(id, &pageEntry{e, p})
	}
	return nil
}
