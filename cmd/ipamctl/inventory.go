package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// inventory is what import, export and diff share: settings, pools, who has which block, every holder of every address, what the space
// has beside addresses, and the other spaces. Its JSON is the format json of import and export. Sequence numbers, request keys, what
// sticky handles had last and the cursors of networks are not in it.
type inventory struct {
	Config       *configView   `json:"config,omitempty"`
	Reservations []reservation `json:"reservations,omitempty"`
	Pools        []poolEntry   `json:"pools"`
	others
	Addresses []addressEntry        `json:"addresses"`
	Blocks    []blockEntry          `json:"blocks,omitempty"`
	Spaces    map[string]*inventory `json:"spaces,omitempty"` // by name

	// calico holds blocks in Calico's own form, which are imported as they are.
	calico  []json.RawMessage
	source  []byte   // the file, if it is JSON
	text    []byte   // the file
	cooling []string // addresses of calico that cool, which diff does not compare
	// refused are the items of the file that cannot be taken, dropped the fields that are dropped on purpose, with their numbers.
	refused []refusal
	dropped map[string]int
	over    []string       // leases and cooldowns whose time is over
	file    bool           // it is of a file
	early   []*inventory   // parts that have been brought
	seen    []*block.Block // of calico, that have been brought or were there
	// poolFields are the settings of a pool that the format has, nil for all; columns the columns of a file of CSV, nil for all.
	poolFields, columns []string
	// lacks says what the format has no place for.
	lacks
}

// lacks says what a format has no place for: hosts, blocks, the details of a holder and of a pool, pools and settings at all, and what
// is not of addresses or of another space.
type lacks struct{ noHosts, noBlocks, noDetails, noPools, noOthers bool }

// poolEntry is a pool with its settings.
type poolEntry struct {
	Name       string   `json:"name"`
	Prefix     string   `json:"prefix"`
	Note       string   `json:"note,omitempty"`
	BlockBits  int      `json:"blockBits,omitempty"`
	Uses       []string `json:"uses,omitempty"`
	Disabled   bool     `json:"disabled,omitempty"`
	Closed     bool     `json:"closed,omitempty"`
	Manual     bool     `json:"manual,omitempty"`
	Priority   int      `json:"priority,omitempty"`
	Nodes      string   `json:"nodes,omitempty"`
	Namespaces string   `json:"namespaces,omitempty"`
	Ranges     []string `json:"ranges,omitempty"`
	MaxBlocks  int      `json:"maxBlocksPerHost,omitempty"`
	Subnet     bool     `json:"subnet,omitempty"`
	Cooldown   string   `json:"cooldown,omitempty"`
	Index      []string `json:"index,omitempty"`
	Draining   []int    `json:"draining,omitempty"` // the other sizes of its blocks

	Order alloc.Order `json:"order,omitempty"`
	Seed  uint64      `json:"seed,omitempty"`
}

// blockEntry is a block with its owner.
type blockEntry struct {
	Block string `json:"block"`
	Owner string `json:"owner,omitempty"`
}

// addressEntry is one holder of an address, or an address that is cooling.
type addressEntry struct {
	Address    string            `json:"address"`
	Handle     string            `json:"handle,omitempty"`
	Host       string            `json:"host,omitempty"`
	Since      string            `json:"since,omitempty"`
	Until      string            `json:"until,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Alternate  map[string]string `json:"alternate,omitempty"`
	Share      *shareEntry       `json:"share,omitempty"`
	Cooling    bool              `json:"cooling,omitempty"`
	Reason     string            `json:"reason,omitempty"` // of an address that was declined
}

// shareEntry says how many holders an address may have, and what they have in common.
type shareEntry struct {
	Max int    `json:"max"`
	Key string `json:"key,omitempty"`
}

func addressEntryOf(al alloc.Allocation) addressEntry {
	e := addressEntry{Address: al.Address.String(), Handle: al.Handle, Host: al.Host.String(), Since: timeText(al.Since), Until: timeText(al.Until),
		Attributes: al.Attributes.Map(), Alternate: al.Alternate.Map(), Cooling: al.Cooling}
	if s := al.Share(); s != (alloc.Share{}) {
		e.Share = &shareEntry{s.Max, s.Key}
	}
	if handle, reason, declined := al.Declined(); declined {
		e.Handle, e.Reason = handle, reason
		e.Attributes = nil
	}
	if delete(e.Attributes, attrImport); len(e.Attributes) == 0 {
		e.Attributes = nil
	}
	return e
}

// attrImport marks a holding with the source of the import that brought it. It is no attribute of the holder: export and diff leave it out.
const attrImport = "ipamctl.import"

// take reads the inventory of a store.
func take(ctx context.Context, e *ipset.Engine) (*inventory, error) {
	inv, err := takeSettings(ctx, e)
	if err != nil {
		return nil, err
	}
	err = eachEntry(ctx, e, netip.Prefix{}, func(entry addressEntry) error {
		inv.Addresses = append(inv.Addresses, entry)
		return nil
	}, func(b blockEntry) { inv.Blocks = append(inv.Blocks, b) })
	return inv, err
}

// takeSettings is take without blocks and addresses.
func takeSettings(ctx context.Context, e *ipset.Engine) (*inventory, error) {
	all, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		return nil, err
	}
	reserved, err := e.Operator().Reservations(ctx)
	if err != nil {
		return nil, err
	}
	inv := &inventory{Config: (*configView)(&cfg), Pools: []poolEntry{}, Addresses: []addressEntry{}}
	for _, r := range reserved {
		inv.Reservations = append(inv.Reservations, reservationOf(r))
	}
	for _, p := range all {
		inv.Pools = append(inv.Pools, entryOf(p))
	}
	return inv, nil
}

// entriesOf yields the holders of the addresses of a block, and what cools.
func entriesOf(b *block.Block) iter.Seq[addressEntry] {
	return func(yield func(addressEntry) bool) {
		for al := range b.All() {
			if al.Cooling {
				if !yield(addressEntryOf(al)) {
					return
				}
				continue
			}
			for h := range al.Holders() {
				if !yield(addressEntryOf(h)) {
					return
				}
			}
		}
	}
}

// outside reports whether an address or a prefix lies outside of another one; the zero prefix has all inside.
func outside(in netip.Prefix, text string) bool {
	if !in.IsValid() {
		return false
	}
	p, err := parsePrefix(text)
	return err == nil && !p.Overlaps(in)
}

// keep leaves what overlaps a prefix; the zero prefix leaves all.
func (inv *inventory) keep(in netip.Prefix) {
	if !in.IsValid() {
		return
	}
	inv.Pools = slices.DeleteFunc(inv.Pools, func(p poolEntry) bool { return outside(in, p.Prefix) })
	inv.Blocks = slices.DeleteFunc(inv.Blocks, func(b blockEntry) bool { return outside(in, b.Block) })
	inv.Addresses = slices.DeleteFunc(inv.Addresses, func(e addressEntry) bool { return outside(in, e.Address) })
	inv.others.keep(in)
	for _, of := range inv.Spaces {
		of.keep(in)
	}
	inv.Reservations = slices.DeleteFunc(inv.Reservations, func(entry reservation) bool {
		r, err := parseRange(entry.Range)
		return err == nil && !r.Overlaps(netipx.RangeOfPrefix(in))
	})
}

func entryOf(p alloc.Pool) poolEntry {
	e := poolEntry{Name: p.Name, Prefix: p.Prefix.String(), Note: p.Note, BlockBits: p.BlockBits, Uses: usesOf(p.Uses), Disabled: p.Disabled, Closed: p.Closed, Manual: p.Manual,
		Priority: p.Priority, Nodes: selectorText(p.Nodes), Namespaces: selectorText(p.Namespaces), MaxBlocks: p.MaxBlocksPerHost, Subnet: p.Subnet, Order: p.Order, Seed: p.Seed, Index: p.Index, Draining: p.Draining}
	for _, r := range p.Ranges {
		e.Ranges = append(e.Ranges, r.String())
	}
	if p.Cooldown > 0 {
		e.Cooldown = p.Cooldown.String()
	}
	return e
}

// pool returns the pool that an entry says.
func (e poolEntry) pool() (p alloc.Pool, err error) {
	p = alloc.Pool{Name: e.Name, Note: e.Note, BlockBits: e.BlockBits, Disabled: e.Disabled, Closed: e.Closed, Manual: e.Manual, Priority: e.Priority, MaxBlocksPerHost: e.MaxBlocks, Subnet: e.Subnet, Order: e.Order, Seed: e.Seed, Index: e.Index}
	if p.Prefix, err = parsePrefix(e.Prefix); err != nil {
		return p, err
	}
	if p.Uses, err = parseUses(e.Uses); err != nil {
		return p, err
	}
	if p.Nodes, err = parseSelector(e.Nodes); err != nil {
		return p, err
	}
	if p.Namespaces, err = parseSelector(e.Namespaces); err != nil {
		return p, err
	}
	for _, text := range e.Ranges {
		r, err := netipx.ParseIPRange(text)
		if err != nil {
			return p, fail(exitUsage, "pool %q: %q is no range", e.Name, text)
		}
		p.Ranges = append(p.Ranges, r)
	}
	if e.Cooldown != "" {
		if p.Cooldown, err = time.ParseDuration(e.Cooldown); err != nil {
			return p, fail(exitUsage, "pool %q: cooldown %q: %v", e.Name, e.Cooldown, err)
		}
	}
	return p, nil
}

// brought counts what an import did.
type brought struct {
	Pools     int `json:"pools"`
	Blocks    int `json:"blocks"`
	Addresses int `json:"addresses"`
	There     int `json:"alreadyThere"`

	Prefixes    int `json:"prefixes,omitempty"`
	Attachments int `json:"attachments,omitempty"`
	Limits      int `json:"limits,omitempty"`

	Replaced  int `json:"replaced,omitempty"`  // holdings of the last import that the file says otherwise
	NotInFile int `json:"notInFile,omitempty"` // blocks and holdings of the last import that the file lacks
	Pruned    int `json:"pruned,omitempty"`    // of these, released
	Ended     int `json:"ended,omitempty"`     // leases and cooldowns in the file whose time is over
	Reserved  int `json:"reserved,omitempty"`  // items of the file that could not be taken

	Dropped map[string]int `json:"dropped,omitempty"` // fields that were dropped on purpose
	Closed  []string       `json:"closed,omitempty"`  // pools that wait to be opened
}

// sameHolders reports whether two blocks hold the same addresses for the same handles.
func sameHolders(x, y *block.Block) bool {
	held := func(b *block.Block) string {
		var s strings.Builder
		for al := range b.All() {
			if !al.Cooling {
				fmt.Fprintf(&s, "%v %q\n", al.Address, al.Handle)
			}
		}
		return s.String()
	}
	return held(x) == held(y)
}
