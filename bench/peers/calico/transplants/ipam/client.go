//go:build transplant

// Package ipam puts ipset.Engine in the place of Calico's IPAM client.
package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/peers/calico/transplants/backend"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/selector"
)

const (
	WindowsReservedHandle = "windows-reserved-ipam-handle"

	defaultBlocks = 20          // Calico's limit where none is configured
	localHost     = "localhost" // the host of a call that names none
)

// ipamClient mirrors Calico's pools and reservations into the engine before each call that they matter to.
type ipamClient struct {
	bc           *backend.Client
	pools        PoolAccessorInterface
	reservations IPReservationInterface
}

func NewIPAMClient(client bapi.Client, pools PoolAccessorInterface, reservations IPReservationInterface) Interface {
	return ipamClient{client.(*backend.Client), pools, reservations}
}

// engine returns an engine on the present store.
func (c ipamClient) engine() *ipset.Engine {
	e, err := ipset.New(c.bc.Store, ipset.Options{Labels: c.labels})
	if err != nil {
		panic(err)
	}
	return e
}

// labels returns a label for each pool that selects a node in Calico's language.
func (c ipamClient) labels(o alloc.Owner) (map[string]string, bool) {
	n, ok := c.bc.Node(o.Name)
	selected := map[string]string{}
	all, _ := c.pools.GetAllPools()
	for _, p := range all {
		if is, err := SelectsNode(p, n); err == nil && is {
			selected[label(p)] = ""
		}
	}
	return selected, ok || o.Name == localHost
}

func label(p v3.IPPool) string { return fmt.Sprintf("pool-%x", p.Spec.CIDR) }

// sync makes the engine's pools and reservations those of Calico, in one commit, and takes empty
// blocks from hosts that their pools do not select any more, which Calico does within other calls.
func (c ipamClient) sync(ctx context.Context) (*ipset.Engine, error) {
	e := c.engine()
	want, err := c.wanted(ctx)
	if err != nil {
		return nil, err
	}
	have, err := e.Pools(ctx)
	for _, p := range have {
		if !slices.ContainsFunc(want.Set, func(q alloc.Pool) bool { return q.Name == p.Name }) {
			want.Remove = append(want.Remove, p.Name)
		}
	}
	err = errors.Join(err, e.Operator().ChangePools(ctx, want))
	for _, b := range c.bc.Pending {
		err = errors.Join(err, e.Operator().ImportBlock(ctx, b))
	}
	c.bc.Pending = nil
	_, swept := e.Operator().Sweep(ctx, alloc.SweepArgs{Unselected: true})
	return e, errors.Join(err, swept)
}

func (c ipamClient) wanted(ctx context.Context) (want alloc.PoolChanges, err error) {
	all, err := c.pools.GetAllPools()
	if err != nil {
		return want, err
	}
	v4, _ := c.pools.GetEnabledPools(4)
	v6, _ := c.pools.GetEnabledPools(6)
	for _, p := range all {
		q := alloc.Pool{Name: p.Spec.CIDR, Prefix: netip.MustParsePrefix(p.Spec.CIDR).Masked(), Uses: uses(p.Spec.AllowedUses...)}
		if p.Spec.BlockSize <= q.Prefix.Addr().BitLen() {
			q.BlockBits = p.Spec.BlockSize // the suite gives IPv4 pools the default of IPv6
		}
		q.Disabled = !slices.ContainsFunc(slices.Concat(v4, v6), func(e v3.IPPool) bool { return e.Spec.CIDR == p.Spec.CIDR })
		q.Nodes = selector.Selector{{Labels: []selector.Requirement{{Key: label(p), Op: selector.Exists}}}}
		want.Set = append(want.Set, q)
	}
	list, err := c.reservations.List(ctx, options.ListOptions{})
	if err != nil {
		return want, err
	}
	var b netipx.IPSetBuilder
	for _, r := range list.Items {
		for _, s := range r.Spec.ReservedCIDRs {
			b.AddPrefix(netip.MustParsePrefix(s))
		}
	}
	reserved, err := b.IPSet()
	b.Complement()
	others, also := b.IPSet()
	want.Reserve, want.Unreserve = alloc.Reservations(reserved.Ranges()...), alloc.Reservations(others.Ranges()...)
	return want, errors.Join(err, also)
}

func uses(list ...v3.IPPoolAllowedUse) (u alloc.Use) {
	for _, one := range list {
		u |= map[v3.IPPoolAllowedUse]alloc.Use{v3.IPPoolAllowedUseWorkload: alloc.Workload, v3.IPPoolAllowedUseTunnel: alloc.Tunnel}[one]
	}
	return u
}

func address(ip cnet.IP) netip.Addr {
	a, _ := netipx.FromStdIP(ip.IP)
	return a
}

func prefix(n cnet.IPNet) netip.Prefix {
	p, _ := netipx.FromStdIPNet(&n.IPNet)
	return p
}

func network(p netip.Prefix) cnet.IPNet { return cnet.MustParseNetwork(p.String()) }

func ip(a netip.Addr) cnet.IP { return cnet.MustParseIP(a.String()) }

func claim(handle *string, attrs map[string]string) (string, alloc.Attributes, error) {
	a, err := alloc.NewAttributes(attrs)
	if handle == nil {
		return "", a, err
	}
	return *handle, a, err
}

func ends(r *HostReservedAttr) (head, tail uint64) {
	if r == nil {
		return 0, 0
	}
	return uint64(r.StartOfBlock), uint64(r.EndOfBlock)
}

// args returns what assigning and claiming have in common. Each pool that is named must be
// enabled and of the family.
func (c ipamClient) args(host string, version, num int, pools []cnet.IPNet, r *HostReservedAttr) (a alloc.AssignArgs, err error) {
	a = alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: num}
	if version == 6 {
		a.Num4, a.Num6 = 0, num
	}
	a.Blocks.Head, a.Blocks.Tail = ends(r)
	enabled, err := c.pools.GetEnabledPools(version)
	for _, n := range pools {
		i := slices.IndexFunc(enabled, func(p v3.IPPool) bool { return netip.MustParsePrefix(p.Spec.CIDR).Masked() == prefix(n) })
		if i < 0 {
			return a, fmt.Errorf("the given pool (%s) does not exist, or is not enabled", n)
		}
		a.Pools = append(a.Pools, enabled[i].Spec.CIDR)
	}
	return a, err
}

// autoAssign assigns the addresses of one family.
func (c ipamClient) autoAssign(ctx context.Context, num int, handle *string, attrs map[string]string, pools []cnet.IPNet, version int, host string, maxBlocks int, r *HostReservedAttr, use v3.IPPoolAllowedUse) (*IPAMAssignments, error) {
	if use == "" {
		return nil, ErrUseRequired
	}
	e, err := c.sync(ctx)
	if err != nil {
		return nil, err
	}
	args, err := c.args(host, version, num, pools, r)
	if err != nil {
		return nil, err
	}
	if args.Handle, args.Attributes, err = claim(handle, attrs); err != nil {
		return nil, err
	}
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		return nil, err
	}
	args.Use, args.Partial, args.Blocks.Max = uses(use), true, cmp.Or(maxBlocks, cfg.MaxBlocksPerHost, defaultBlocks)
	got, err := e.AutoAssign(ctx, args)
	switch {
	case errors.Is(err, ipalloc.ErrNotFound):
		return nil, c.unqualified(host)
	case r != nil && errors.Is(err, ipalloc.ErrInvalid):
		return nil, ErrStrictAffinity
	case err != nil:
		return nil, err
	}
	out := &IPAMAssignments{IPVersion: version, NumRequested: num, HostReservedAttr: r}
	for _, al := range slices.Concat(got.V4, got.V6) {
		n := network(netip.PrefixFrom(al.Address, al.Block.Bits()))
		n.IP = ip(al.Address).IP
		out.IPs = append(out.IPs, n)
	}
	return out, out.explain(got.Short, cfg.Strict)
}

// unqualified returns Calico's error for a host that no pool serves.
func (c ipamClient) unqualified(host string) error {
	if selected, ok := c.labels(alloc.HostOwner(host)); ok && len(selected) == 0 {
		return fmt.Errorf("no configured Calico pools for node %s", host)
	}
	return ErrNoQualifiedPool
}

// explain adds Calico's message why there are fewer addresses than asked, and returns its error.
func (out *IPAMAssignments) explain(short []alloc.Shortage, strict bool) error {
	var pools []string
	for _, s := range short {
		if s.Reason == alloc.ReasonLimitReached {
			out.AddMsg(fmt.Sprintf("Need to allocate an IPAM block but could not - limit of %d blocks reached for this node", s.Limit.Max))
			return ErrBlockLimit
		}
		pools = append(pools, s.Pool)
	}
	if strict && len(short) > 0 {
		out.AddMsg("No more free affine blocks and strict affinity enabled")
	} else if len(short) > 0 {
		out.AddMsg(fmt.Sprintf("No IPs available in pools: %v", pools))
	}
	return nil
}

func (c ipamClient) AssignIP(ctx context.Context, a AssignIPArgs) error {
	e, err := c.sync(ctx)
	if err != nil {
		return err
	}
	args := alloc.AssignIPArgs{Address: address(a.IP), Owner: alloc.HostOwner(cmp.Or(a.Hostname, localHost)), Use: alloc.Workload}
	args.Blocks.Head, args.Blocks.Tail = ends(a.HostReservedAttr)
	if args.Handle, args.Attributes, err = claim(a.HandleID, a.Attrs); err != nil {
		return err
	}
	_, err = e.AssignIP(ctx, args)
	switch {
	case errors.Is(err, ipalloc.ErrNotFound):
		return errors.New("The provided IP address is not in a configured pool\n")
	case errors.Is(err, ipalloc.ErrOccupied):
		return cerrors.ErrorResourceAlreadyExists{Err: errors.New("Address already assigned in block"), Identifier: a.IP.String()}
	}
	return err
}

func (c ipamClient) ReleaseIPs(ctx context.Context, opts ...ReleaseOptions) ([]cnet.IP, error) {
	var list []alloc.Release
	for _, o := range opts {
		a, err := netip.ParseAddr(o.Address)
		if err != nil {
			return nil, err
		}
		r := alloc.Release{Address: a, Guard: alloc.Guard{Handle: o.Handle}}
		if o.SequenceNumber != nil {
			r.Guard.Seq = *o.SequenceNumber
		}
		list = append(list, r)
	}
	got, err := c.engine().ReleaseIPs(ctx, list...)
	if err == nil {
		_, err = c.sync(ctx)
	}
	free := []cnet.IP{}
	for _, r := range got {
		switch r.Outcome {
		case alloc.WasFree:
			free = append(free, ip(r.Address))
		case alloc.OwnerChanged:
			err = cmp.Or(err, error(cerrors.ErrorResourceUpdateConflict{Identifier: r.Address.String()}))
		}
	}
	return free, err
}

func (c ipamClient) GetAssignmentAttributes(ctx context.Context, ip cnet.IP) (map[string]string, *string, error) {
	al, err := c.engine().Lookup(ctx, address(ip))
	if err != nil {
		return nil, nil, cerrors.ErrorResourceDoesNotExist{Identifier: ip.String(), Err: err}
	}
	if al.Handle == "" {
		return al.Attributes.Map(), nil, nil
	}
	return al.Attributes.Map(), &al.Handle, nil
}

func (c ipamClient) IPsByHandle(ctx context.Context, handle string) (ips []cnet.IP, err error) {
	got, err := c.engine().IPsByHandle(ctx, handle)
	if err == nil && len(got) == 0 {
		err = cerrors.ErrorResourceDoesNotExist{Identifier: handle}
	}
	for _, al := range got {
		ips = append(ips, ip(al.Address))
	}
	return ips, err
}

func (c ipamClient) ReleaseByHandle(ctx context.Context, handle string) error {
	got, err := c.engine().ReleaseByHandle(ctx, handle)
	if err == nil && len(got) == 0 {
		return cerrors.ErrorResourceDoesNotExist{Identifier: handle}
	}
	if err == nil {
		_, err = c.sync(ctx)
	}
	return err
}

func (c ipamClient) ClaimAffinity(ctx context.Context, cidr cnet.IPNet, host string) (claimed, failed []cnet.IPNet, err error) {
	e, err := c.sync(ctx)
	if err != nil {
		return nil, nil, err
	}
	got, refused, err := e.ClaimAffinity(ctx, prefix(cidr), alloc.HostOwner(host))
	for _, b := range got {
		claimed = append(claimed, network(b))
	}
	for _, f := range refused {
		if errors.Is(f.Err, ipalloc.ErrInvalid) {
			return nil, nil, fmt.Errorf("The requested CIDR (%s) is smaller than the minimum.", cidr.String())
		}
		failed = append(failed, network(f.Block))
	}
	return claimed, failed, err
}

func (c ipamClient) disown(ctx context.Context, host string, p netip.Prefix, mustBeEmpty bool) error {
	_, err := c.engine().DisownBlocks(ctx, alloc.DisownArgs{Prefix: p, Owner: alloc.HostOwner(host), OnlyEmpty: mustBeEmpty})
	return err
}

func (c ipamClient) ReleaseAffinity(ctx context.Context, cidr cnet.IPNet, host string, mustBeEmpty bool) error {
	return c.disown(ctx, host, prefix(cidr), mustBeEmpty)
}

func (c ipamClient) ReleaseHostAffinities(ctx context.Context, host string, mustBeEmpty bool) error {
	return c.disown(ctx, host, netip.Prefix{}, mustBeEmpty)
}

func (c ipamClient) ReleasePoolAffinities(ctx context.Context, pool cnet.IPNet) error {
	_, err := c.engine().DisownBlocks(ctx, alloc.DisownArgs{Pool: pool.String()})
	return err
}

func (c ipamClient) ReleaseBlockAffinity(ctx context.Context, b *model.AllocationBlock, mustBeEmpty bool) error {
	return c.disown(ctx, b.Host(), prefix(b.CIDR), mustBeEmpty)
}

func (c ipamClient) GetIPAMConfig(ctx context.Context) (*IPAMConfig, error) {
	cfg, err := c.engine().Operator().Config(ctx)
	return &IPAMConfig{StrictAffinity: cfg.Strict, AutoAllocateBlocks: !cfg.NoAutoBlocks, MaxBlocksPerHost: cfg.MaxBlocksPerHost}, err
}

func (c ipamClient) SetIPAMConfig(ctx context.Context, cfg IPAMConfig) error {
	return c.engine().Operator().SetConfig(ctx, alloc.Config{Strict: cfg.StrictAffinity, NoAutoBlocks: !cfg.AutoAllocateBlocks, MaxBlocksPerHost: cfg.MaxBlocksPerHost})
}

func (c ipamClient) RemoveIPAMHost(ctx context.Context, host string) error {
	return c.disown(ctx, host, netip.Prefix{}, false)
}

func (c ipamClient) GetUtilization(ctx context.Context, a GetUtilizationArgs) (list []*PoolUtilization, err error) {
	all, err := c.engine().Utilization(ctx)
	for _, u := range all {
		if len(a.Pools) > 0 && !slices.Contains(a.Pools, u.Pool) {
			continue
		}
		p := &PoolUtilization{Name: u.Pool}
		if u.Prefix.IsValid() {
			p.CIDR = network(u.Prefix).IPNet
		}
		for _, b := range u.Blocks {
			p.Blocks = append(p.Blocks, BlockUtilization{network(b.Prefix).IPNet, int(b.Capacity.Lo), int(b.Available.Lo + b.Reserved.Lo)})
		}
		list = append(list, p)
	}
	return list, err
}

func (c ipamClient) ensureBlock(ctx context.Context, r *HostReservedAttr, pools []cnet.IPNet, version int, host string) (*cnet.IPNet, error) {
	e, err := c.sync(ctx)
	if err != nil {
		return nil, err
	}
	args, err := c.args(host, version, 1, pools, r)
	if err != nil {
		return nil, err
	}
	got, err := e.EnsureBlock(ctx, args)
	if err != nil || len(got) == 0 {
		return nil, err
	}
	n := network(got[0])
	return &n, nil
}
