package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/calico"
)

// inventory is what import, export and diff share: the pools, who has which block, and who holds which
// address. Its JSON is the format json of import and export.
type inventory struct {
	Pools     []poolEntry    `json:"pools"`
	Blocks    []blockEntry   `json:"blocks,omitempty"`
	Addresses []addressEntry `json:"addresses"`

	// calico holds blocks in Calico's own form, which are imported as they are.
	calico []json.RawMessage
	// noHosts says that the format has no place for hosts, noBlocks the same of blocks.
	noHosts, noBlocks bool
}

// poolEntry is a pool with its settings.
type poolEntry struct {
	Name       string   `json:"name"`
	Prefix     string   `json:"prefix"`
	BlockBits  int      `json:"blockBits,omitempty"`
	Uses       []string `json:"uses,omitempty"`
	Disabled   bool     `json:"disabled,omitempty"`
	Manual     bool     `json:"manual,omitempty"`
	Priority   int      `json:"priority,omitempty"`
	Nodes      string   `json:"nodes,omitempty"`
	Namespaces string   `json:"namespaces,omitempty"`
	Ranges     []string `json:"ranges,omitempty"`
	MaxBlocks  int      `json:"maxBlocksPerHost,omitempty"`
	Subnet     bool     `json:"subnet,omitempty"`
	Cooldown   string   `json:"cooldown,omitempty"`

	Order ipset.Order `json:"order,omitempty"`
}

// blockEntry is a block with its owner.
type blockEntry struct {
	Block string `json:"block"`
	Owner string `json:"owner,omitempty"`
}

// addressEntry is an address that is held.
type addressEntry struct {
	Address    string            `json:"address"`
	Handle     string            `json:"handle,omitempty"`
	Host       string            `json:"host,omitempty"`
	Until      string            `json:"until,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// take reads the inventory of a store. Cooling addresses are not in it.
func take(ctx context.Context, e *ipset.Engine) (*inventory, error) {
	all, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	inv := &inventory{Pools: []poolEntry{}, Addresses: []addressEntry{}}
	for _, p := range all {
		inv.Pools = append(inv.Pools, entryOf(p))
	}
	for b, err := range e.Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		inv.Blocks = append(inv.Blocks, blockEntry{b.Prefix().String(), b.Owner().String()})
		for al := range b.All() {
			if !al.Cooling {
				inv.Addresses = append(inv.Addresses, addressEntry{al.Address.String(), al.Handle, al.Host.String(), timeText(al.Until), al.Attributes.Map()})
			}
		}
	}
	return inv, nil
}

// keep leaves what overlaps a prefix; the zero prefix leaves all.
func (inv *inventory) keep(in netip.Prefix) {
	if !in.IsValid() {
		return
	}
	outside := func(text string) bool {
		p, err := parsePrefix(text)
		return err == nil && !p.Overlaps(in)
	}
	inv.Pools = slices.DeleteFunc(inv.Pools, func(p poolEntry) bool { return outside(p.Prefix) })
	inv.Blocks = slices.DeleteFunc(inv.Blocks, func(b blockEntry) bool { return outside(b.Block) })
	inv.Addresses = slices.DeleteFunc(inv.Addresses, func(e addressEntry) bool { return outside(e.Address) })
}

func entryOf(p ipset.Pool) poolEntry {
	e := poolEntry{Name: p.Name, Prefix: p.Prefix.String(), BlockBits: p.BlockBits, Uses: usesOf(p.Uses), Disabled: p.Disabled, Manual: p.Manual,
		Priority: p.Priority, Nodes: selectorText(p.Nodes), Namespaces: selectorText(p.Namespaces), MaxBlocks: p.MaxBlocksPerHost, Subnet: p.Subnet, Order: p.Order}
	for _, r := range p.Ranges {
		e.Ranges = append(e.Ranges, r.String())
	}
	if p.Cooldown > 0 {
		e.Cooldown = p.Cooldown.String()
	}
	return e
}

// pool returns the pool that an entry says.
func (e poolEntry) pool() (p ipset.Pool, err error) {
	p = ipset.Pool{Name: e.Name, BlockBits: e.BlockBits, Disabled: e.Disabled, Manual: e.Manual, Priority: e.Priority, MaxBlocksPerHost: e.MaxBlocks, Subnet: e.Subnet, Order: e.Order}
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
	There     int `json:"alreadyThere"` // pools, blocks and addresses
}

// bring imports an inventory. It goes on after an entry that the store refuses, and returns the refusals; it may be
// repeated. host is for addresses whose source does not say which host they are for.
func (a *app) bring(ctx context.Context, e *ipset.Engine, inv *inventory, host ipset.Owner) (done brought, refused []string, err error) {
	fatal := func(what string, err error) error {
		switch statusOf(err) {
		case exitUnavailable, exitAborted, exitDamaged:
			return err
		}
		refused = append(refused, fmt.Sprintf("%s: %v", what, err))
		return nil
	}
	if err := a.bringPools(ctx, e, inv, &done, fatal); err != nil {
		return done, refused, err
	}
	for _, raw := range inv.calico {
		b, err := calico.Import(raw, 0)
		if err != nil {
			if err = fatal("block", err); err != nil {
				return done, refused, err
			}
			continue
		}
		p, held := b.Prefix(), int(b.Used())
		if there, err := e.BlockOf(ctx, p.Addr()); err != nil {
			return done, refused, err
		} else if there.IsValid() && there.Prefix() == p && there.Owner() == b.Owner() && sameHolders(there, b.Info()) {
			done.There += 1 + held
			continue
		}
		if err := e.ImportBlock(ctx, b); err == nil {
			done.Blocks++
			done.Addresses += held
		} else if err = fatal("block "+p.String(), err); err != nil {
			return done, refused, err
		}
	}
	if err := bringBlocks(ctx, e, inv, &done, fatal); err != nil {
		return done, refused, err
	}
	for _, entry := range inv.Addresses {
		if err := a.bringAddress(ctx, e, entry, host, &done); err != nil {
			if err = fatal(entry.Address, err); err != nil {
				return done, refused, err
			}
		}
	}
	return done, refused, nil
}

// bringPools adds the pools that are not there yet.
func (a *app) bringPools(ctx context.Context, e *ipset.Engine, inv *inventory, done *brought, fatal func(string, error) error) error {
	there, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	for _, entry := range inv.Pools {
		p, err := entry.pool()
		if err == nil && slices.ContainsFunc(there, func(q ipset.Pool) bool { return q.Name == p.Name && q.Prefix == p.Prefix }) {
			done.There++
			continue
		}
		if err == nil {
			err = e.AddPool(ctx, p)
		}
		if err == nil {
			done.Pools++
		} else if err = fatal("pool "+entry.Name, err); err != nil {
			return err
		}
	}
	return nil
}

// bringBlocks claims blocks for their owners. A block without owner appears with its first address.
func bringBlocks(ctx context.Context, e *ipset.Engine, inv *inventory, done *brought, fatal func(string, error) error) error {
	for _, entry := range inv.Blocks {
		o, err := ipset.ParseOwner(entry.Owner)
		if err == nil && o.Kind == ipset.Nobody {
			continue
		}
		var p netip.Prefix
		if err == nil {
			p, err = parsePrefix(entry.Block)
		}
		if err == nil {
			there, berr := e.BlockOf(ctx, p.Addr())
			if berr == nil && there.IsValid() && there.Prefix() == p && there.Owner() == o {
				done.There++
				continue
			}
			_, failed, cerr := e.ClaimAffinity(ctx, p, o)
			if err = cerr; cerr == nil && len(failed) > 0 {
				err = failed[0].Err
			}
		}
		if err == nil {
			done.Blocks++
		} else if err = fatal("block "+entry.Block, err); err != nil {
			return err
		}
	}
	return nil
}

// bringAddress assigns one address.
func (a *app) bringAddress(ctx context.Context, e *ipset.Engine, entry addressEntry, host ipset.Owner, done *brought) error {
	ip, err := parseAddr(entry.Address)
	if err != nil {
		return err
	}
	owner, err := ipset.ParseOwner(entry.Host)
	if err != nil {
		return err
	}
	if owner.Kind == ipset.Nobody {
		if owner = host; host.Kind == ipset.Nobody {
			return fail(exitUsage, "the source does not say which host it is for; name one with --host")
		}
	}
	var ttl time.Duration
	if entry.Until != "" {
		until, err := time.Parse(time.RFC3339, entry.Until)
		if err != nil {
			return fail(exitUsage, "until %q: %v", entry.Until, err)
		}
		if ttl = until.Sub(a.now()); ttl <= 0 {
			return nil // the lease has ended
		}
	}
	attributes, err := ipset.NewAttributes(entry.Attributes)
	if err != nil {
		return err
	}
	if al, err := e.Lookup(ctx, ip); err == nil && al.Handle == entry.Handle {
		done.There++
		return nil
	}
	_, err = e.AssignIP(ctx, ipset.AssignIPArgs{Address: ip, Owner: owner, Claim: ipset.Claim{Handle: entry.Handle, Attributes: attributes, TTL: ttl}})
	if err == nil {
		done.Addresses++
	}
	return err
}

// sameHolders reports whether two blocks hold the same addresses for the same handles.
func sameHolders(x, y ipset.BlockInfo) bool {
	held := func(b ipset.BlockInfo) string {
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
