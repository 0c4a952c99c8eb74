package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// addressView is an address in JSON.
type addressView struct {
	Address    string            `json:"address"`
	State      string            `json:"state"`
	Handle     string            `json:"handle,omitempty"`
	Host       string            `json:"host,omitempty"`
	Borrowed   bool              `json:"borrowed,omitempty"`
	Pool       string            `json:"pool,omitempty"`
	Block      string            `json:"block,omitempty"`
	BlockOwner string            `json:"blockOwner,omitempty"`
	BlockSince string            `json:"blockSince,omitempty"`
	Sequence   uint64            `json:"sequence,omitempty"`
	Since      string            `json:"since,omitempty"`
	Until      string            `json:"until,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Alternate  map[string]string `json:"alternateAttributes,omitempty"`
}

// The states of an address.
const (
	stateHeld     = "held"
	stateCooling  = "cooling"
	stateDeclined = "declined" // cooling, and kept from its former holder too
	stateFree     = "free"     // in a block
	stateReserved = "reserved" // never assigned automatically
	stateNoBlock  = "unclaimed"
)

var allocationColumns = []string{"ADDRESS", "STATE", "HANDLE", "HOST", "POOL", "BLOCK", "OWNER", "UNTIL", "ATTRIBUTES"}

func (v *addressView) cells() []string {
	state := v.State
	if v.Borrowed {
		state += ", borrowed"
	}
	return []string{v.Address, state, v.Handle, v.Host, v.Pool, v.Block, v.BlockOwner, v.Until, attributesText(v.Attributes)}
}

// attributesText joins attributes, keys ascending.
func attributesText(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// timeText is a time in tables and JSON.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// viewOf returns an allocation for printing. owner is that of its block.
func viewOf(al alloc.Allocation, owner alloc.Owner, pool string) addressView {
	v := addressView{
		Address: al.Address.String(), State: stateHeld, Handle: al.Handle, Host: al.Host.String(), Pool: pool, Block: al.Block.String(),
		BlockOwner: owner.String(), Sequence: al.Seq, Since: timeText(al.Since), Until: timeText(al.Until), Attributes: al.Attributes.Map(), Alternate: al.Alternate.Map(),
		Borrowed: borrowed(al, owner),
	}
	if al.Cooling {
		v.State = stateCooling
	}
	if _, _, ok := al.Declined(); ok {
		v.State = stateDeclined // by whom and why is in the attributes
	}
	return v
}

// borrowed reports whether an address is held for another host than the owner of its block.
func borrowed(al alloc.Allocation, owner alloc.Owner) bool {
	return !al.Cooling && al.Host != owner && al.Host.Kind != alloc.Nobody && owner.Kind != alloc.Nobody
}

// poolAt returns the name of the smallest pool that contains an address, empty for none.
func poolAt(all []alloc.Pool, a netip.Addr) string {
	name, bits := "", -1
	for _, p := range all {
		if p.Prefix.Contains(a) && p.Prefix.Bits() > bits {
			name, bits = p.Name, p.Prefix.Bits()
		}
	}
	return name
}

// parseAddr reads an address; a 4-in-6 one becomes IPv4.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, fail(exitUsage, "%q is not an IP address", s)
	}
	return a.Unmap(), nil
}

// flagPrefix reads a prefix that a flag names; without one it returns the zero prefix.
func flagPrefix(flag string) (netip.Prefix, error) {
	if flag == "" {
		return netip.Prefix{}, nil
	}
	return parsePrefix(flag)
}

// parsePrefix reads a prefix, or an address as one of full length. Host bits are masked.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := parseAddr(s)
		if err != nil {
			return netip.Prefix{}, fail(exitUsage, "%q is neither a prefix nor an address", s)
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return p, fail(exitUsage, "%q is not a prefix", s)
	}
	return p.Masked(), nil
}

func (a *app) addressCommand() *cobra.Command {
	c := &cobra.Command{Use: "address", Aliases: []string{"addr", "ip"}, Short: "List and transfer addresses"}
	c.AddCommand(a.addressListCommand(), a.addressTransferCommand())
	return c
}

func (a *app) showAddresses(ctx context.Context, e *ipset.Engine, args []string) error {
	all, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	l := &listing{columns: append(slices.Clone(allocationColumns), "SEQUENCE", "SINCE", "BLOCK SINCE", "ALTERNATE"), single: len(args) == 1}
	for _, arg := range args {
		ip, err := parseAddr(arg)
		if err != nil {
			return err
		}
		views, err := lookup(ctx, e, all, ip)
		if err != nil {
			return err
		}
		for _, v := range views {
			seq := ""
			if v.Sequence != 0 {
				seq = fmt.Sprint(v.Sequence)
			}
			l.add(v.Address, v, append(v.cells(), seq, v.Since, v.BlockSince, attributesText(v.Alternate))...)
		}
		l.single = l.single && len(views) == 1
	}
	return a.print(l)
}

// lookup says what an address is: of one with several holders, what each has.
func lookup(ctx context.Context, e *ipset.Engine, all []alloc.Pool, ip netip.Addr) ([]addressView, error) {
	v := addressView{Address: ip.String(), State: stateNoBlock, Pool: poolAt(all, ip)}
	b, err := e.Operator().BlockOf(ctx, ip)
	if err != nil {
		return nil, err
	}
	if b == nil && v.Pool == "" {
		return nil, fail(exitNotFound, "%v is in no pool and in no block", ip)
	}
	if b != nil {
		if al, taken := b.Lookup(ip); taken {
			var views []addressView
			for h := range al.Holders() {
				view := viewOf(h, b.Owner(), v.Pool)
				view.BlockSince = timeText(b.Claimed())
				views = append(views, view)
			}
			return views, nil
		}
		v.Block, v.BlockOwner, v.State = b.Prefix().String(), b.Owner().String(), stateFree
		if !isFree(b, ip) {
			v.State = stateReserved
		}
		v.BlockSince = timeText(b.Claimed())
	}
	reserved, err := reserved(ctx, e)
	if err == nil && (reserved.Contains(ip) || avoids(all, v.Pool, ip)) {
		v.State = stateReserved
	}
	return []addressView{v}, err
}

// avoids reports whether a pool's ranges, or its being a subnet, keep an address from automatic assignment.
func avoids(all []alloc.Pool, pool string, ip netip.Addr) bool {
	i := slices.IndexFunc(all, func(p alloc.Pool) bool { return p.Name == pool })
	if i < 0 {
		return false
	}
	p := &all[i]
	if p.Subnet && p.Prefix.Bits() < ip.BitLen()-1 && (ip == p.Prefix.Addr() || ip.Is4() && ip == netipx.PrefixLastIP(p.Prefix)) {
		return true
	}
	return len(p.Ranges) > 0 && !slices.ContainsFunc(p.Ranges, func(r netipx.IPRange) bool { return r.Contains(ip) })
}

// isFree reports whether an address that is not held is not one of the reserved ones at the ends of its block.
func isFree(b *block.Block, ip netip.Addr) bool {
	head, tail := b.Reserved()
	first, last := addrmap.Of(b.Prefix())
	at := addr.FromAddr(ip)
	return at.Sub(first).Cmp(addr.U128{Lo: head}) >= 0 && last.Sub(at).Cmp(addr.U128{Lo: tail}) >= 0
}

func (a *app) addressListCommand() *cobra.Command {
	var in, as, attribute, sum string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the addresses that are held or cooling",
		Long:  "list prints every holder of every address, and the cooling addresses. With --sum it prints how many are held, the largest number first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := flagPrefix(in)
			if err != nil {
				return err
			}
			key, value, ok := strings.Cut(attribute, "=")
			switch {
			case attribute != "" && (!ok || key == ""):
				return fail(exitUsage, "--attribute %q: want KEY=VALUE", attribute)
			case as != "" && attribute+sum != "":
				return fail(exitUsage, "--as %s: the list is whole, without --attribute and --sum", as)
			}
			want := func(al alloc.Allocation) bool {
				return (!p.IsValid() || p.Contains(al.Address)) && (attribute == "" || !al.Cooling && al.Attributes.Map()[key] == value) && (sum == "" || !al.Cooling)
			}
			switch as {
			case "":
			case "in-use":
				return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error { return a.writeInUse(ctx, e, p) })
			default:
				return fail(exitUsage, "--as %s: in-use is needed", as)
			}
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error { return a.listAddresses(ctx, e, p, want, sum) })
		},
	}
	c.Flags().StringVar(&in, "in", "", "only those in this `PREFIX`")
	c.Flags().StringVar(&attribute, "attribute", "", "only those held with this attribute, `KEY=VALUE`")
	c.Flags().StringVar(&sum, "sum", "", "count them by `WHAT`: host, pool, or the key of an attribute such as namespace")
	c.Flags().StringVar(&as, "as", "", "in-use: write what one space holds as a `LIST` for gc and check, with its moment, and its end only when it is complete")
	return c
}

// listAddresses prints what want accepts as it comes, or with sum how much of it each host, each pool, or each value of an attribute has.
func (a *app) listAddresses(ctx context.Context, e *ipset.Engine, p netip.Prefix, want func(alloc.Allocation) bool, sum string) error {
	l := &listing{columns: allocationColumns, empty: "no address is held", long: true}
	if sum != "" {
		l.columns = []string{strings.ToUpper(sum), "HELD"}
	}
	if strings.HasPrefix(a.store, "bolt://") { // what is printed cannot be taken back: find damage before
		err := a.eachSpace(ctx, e, func(e *ipset.Engine) error {
			for _, err := range e.Operator().Blocks(ctx, p) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return a.listSpaces(ctx, e, l, func(e *ipset.Engine) error {
		all, err := e.Pools(ctx)
		if err != nil {
			return err
		}
		held := map[string]int{}
		for b, err := range e.Operator().Blocks(ctx, p) {
			if err != nil {
				return err
			}
			for v := range viewsOf(b, all, want) {
				if sum == "" {
					l.add(v.Address, v, v.cells()...)
					continue
				}
				of, known := map[string]string{"host": v.Host, "pool": v.Pool}[sum]
				if !known {
					of = v.Attributes[sum]
				}
				held[of]++
			}
		}
		names := slices.SortedFunc(maps.Keys(held), func(x, y string) int { return cmp.Or(held[y]-held[x], strings.Compare(x, y)) })
		for _, name := range names {
			l.add(name, map[string]any{sum: name, "held": held[name]}, name, fmt.Sprint(held[name]))
		}
		return nil
	})
}

// writeInUse writes what is held as a list of what is in use.
func (a *app) writeInUse(ctx context.Context, e *ipset.Engine, p netip.Prefix) error {
	fmt.Fprintf(a.stdout, "#%s%s\n", takenWord, timeText(a.now()))
	for al, err := range e.Allocations(ctx, p) {
		if err != nil {
			return err
		}
		for h := range al.Holders() {
			if h.Cooling {
				continue
			}
			line := h.Address.String()
			if !strings.ContainsFunc(h.Handle, func(r rune) bool { return r == '#' || r == ',' || !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
				line += " " + h.Handle // another one has no place in a line
			}
			fmt.Fprintln(a.stdout, strings.TrimSpace(line))
		}
	}
	_, err := fmt.Fprintln(a.stdout, "# end")
	return err
}

// viewsOf yields the allocations of a block that want accepts.
func viewsOf(b *block.Block, all []alloc.Pool, want func(alloc.Allocation) bool) iter.Seq[addressView] {
	return func(yield func(addressView) bool) {
		pool := poolAt(all, b.Prefix().Addr())
		for al := range b.All() {
			for h := range al.Holders() {
				if want(h) && !yield(viewOf(h, b.Owner(), pool)) {
					return
				}
			}
		}
	}
}

// addHeld adds allocations, each with the owner of its block.
func addHeld(ctx context.Context, e *ipset.Engine, l *listing, als []alloc.Allocation) error {
	all, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	owners := map[netip.Prefix]alloc.Owner{}
	for _, al := range als {
		owner, known := owners[al.Block]
		if !known {
			b, err := e.Operator().BlockOf(ctx, al.Address)
			if err != nil {
				return err
			}
			if b != nil {
				owner = b.Owner()
			}
			owners[al.Block] = owner
		}
		v := viewOf(al, owner, poolAt(all, al.Address))
		l.add(v.Address, v, v.cells()...)
	}
	return nil
}
