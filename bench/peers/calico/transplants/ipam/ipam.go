//go:build transplant

package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

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
	"github.com/ipalloc/ipalloc/selector"
)

// defaultBlocks is Calico's limit where none is configured.
const defaultBlocks = 20

// localHost is the host of a call that names none.
const localHost = "localhost"

// IPReservationInterface is where reservations come from.
type IPReservationInterface interface {
	List(ctx context.Context, opts options.ListOptions) (*v3.IPReservationList, error)
}

// ipamClient mirrors Calico's pools and reservations into the engine before each call that they matter to.
type ipamClient struct {
	bc           *backend.Client
	pools        PoolAccessorInterface
	reservations IPReservationInterface
	e            *ipset.Engine
	of           any // the store that e is on
}

func NewIPAMClient(client bapi.Client, pools PoolAccessorInterface, reservations IPReservationInterface) Interface {
	return &ipamClient{bc: client.(*backend.Client), pools: pools, reservations: reservations}
}

// engine returns the engine on the present store.
func (c *ipamClient) engine() *ipset.Engine {
	if c.of != any(c.bc.Store) {
		c.of = c.bc.Store
		e, err := ipset.New(c.bc.Store, ipset.Options{Labels: c.labels})
		if err != nil {
			panic(err)
		}
		c.e = e
	}
	return c.e
}

// labels returns a label for each pool that selects a node in Calico's language.
func (c *ipamClient) labels(o ipset.Owner) (map[string]string, bool) {
	n, ok := c.bc.Node(o.Name)
	if !ok && o.Name != localHost {
		return nil, false
	}
	m := map[string]string{}
	all, _ := c.pools.GetAllPools()
	for _, p := range all {
		if is, err := SelectsNode(p, n); err == nil && is {
			m[label(p)] = ""
		}
	}
	return m, true
}

func label(p v3.IPPool) string {
	return "pool-" + strings.NewReplacer(":", "-", "/", ".").Replace(p.Spec.CIDR) + "-x"
}

// sync makes the engine's pools those of Calico, removals first, and its reservations.
func (c *ipamClient) sync(ctx context.Context) (*ipset.Engine, error) {
	e := c.engine()
	want, err := c.wanted()
	if err != nil {
		return nil, err
	}
	have, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range have {
		if _, ok := want[p.Name]; !ok {
			err = errors.Join(err, e.RemovePool(ctx, p.Name))
		}
	}
	for _, p := range want {
		i := slices.IndexFunc(have, func(h ipset.Pool) bool { return h.Name == p.Name })
		if i < 0 {
			err = errors.Join(err, e.AddPool(ctx, p))
		} else if !reflect.DeepEqual(have[i], p) {
			err = errors.Join(err, e.UpdatePool(ctx, p))
		}
	}
	for _, b := range c.bc.Pending {
		err = errors.Join(err, e.Operator().ImportBlock(ctx, b))
	}
	c.bc.Pending = nil
	return e, errors.Join(err, c.reserve(ctx, e))
}

func (c *ipamClient) wanted() (map[string]ipset.Pool, error) {
	all, err := c.pools.GetAllPools()
	if err != nil {
		return nil, err
	}
	v4, _ := c.pools.GetEnabledPools(4)
	v6, _ := c.pools.GetEnabledPools(6)
	enabled := slices.Concat(v4, v6)
	want := map[string]ipset.Pool{}
	for _, p := range slices.Concat(all, enabled) { // the enabled ones have the default size of their family
		q := ipset.Pool{Name: p.Spec.CIDR, Prefix: netip.MustParsePrefix(p.Spec.CIDR).Masked(), BlockBits: p.Spec.BlockSize, Uses: uses(p.Spec.AllowedUses...)}
		if q.Prefix.Addr().Is4() {
			q.BlockBits = min(q.BlockBits, 32)
		}
		q.Disabled = !slices.ContainsFunc(enabled, func(e v3.IPPool) bool { return e.Spec.CIDR == p.Spec.CIDR })
		q.Nodes = selector.Selector{{Labels: []selector.Requirement{{Key: label(p), Op: selector.Exists}}}}
		want[q.Name] = q
	}
	return want, nil
}

func uses(list ...v3.IPPoolAllowedUse) (u ipset.Use) {
	for _, one := range list {
		u |= map[v3.IPPoolAllowedUse]ipset.Use{v3.IPPoolAllowedUseWorkload: ipset.Workload, v3.IPPoolAllowedUseTunnel: ipset.Tunnel}[one]
	}
	return u
}

func (c *ipamClient) reserve(ctx context.Context, e *ipset.Engine) error {
	list, err := c.reservations.List(ctx, options.ListOptions{})
	if err != nil {
		return err
	}
	var b netipx.IPSetBuilder
	for _, r := range list.Items {
		for _, s := range r.Spec.ReservedCIDRs {
			b.AddPrefix(netip.MustParsePrefix(s))
		}
	}
	set, err := b.IPSet()
	if err != nil {
		return err
	}
	if have, err := e.Operator().Reservations(ctx); err != nil || have.Equal(set) {
		return err
	}
	_, err = e.Operator().SetReservations(ctx, set)
	return err
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

func networks(ps []netip.Prefix) (list []cnet.IPNet) {
	for _, p := range ps {
		list = append(list, network(p))
	}
	return list
}

func ips[T any](list []T, addr func(T) netip.Addr) (out []cnet.IP) {
	for _, x := range list {
		out = append(out, cnet.MustParseIP(addr(x).String()))
	}
	return out
}

func claim(handle *string, attrs map[string]string) (ipset.Claim, error) {
	var c ipset.Claim
	var err error
	if handle != nil {
		c.Handle = *handle
	}
	c.Attributes, err = ipset.NewAttributes(attrs)
	return c, err
}

func ends(r *HostReservedAttr) (head, tail uint64) {
	if r == nil {
		return 0, 0
	}
	return uint64(r.StartOfBlock), uint64(r.EndOfBlock)
}

// named returns the names of pools, each of which must be enabled and of that family.
func (c *ipamClient) named(nets []cnet.IPNet, version int) (names []string, err error) {
	enabled, _ := c.pools.GetEnabledPools(version)
	for _, n := range nets {
		i := slices.IndexFunc(enabled, func(p v3.IPPool) bool { return netip.MustParsePrefix(p.Spec.CIDR).Masked() == prefix(n) })
		if i < 0 {
			return nil, fmt.Errorf("the given pool (%s) does not exist, or is not enabled", n)
		}
		names = append(names, enabled[i].Spec.CIDR)
	}
	return names, nil
}

func (c *ipamClient) AutoAssign(ctx context.Context, a AutoAssignArgs) (v4, v6 *IPAMAssignments, err error) {
	if a.IntendedUse == "" {
		return nil, nil, errors.New("must specify the intended use when assigning an IP")
	}
	e, err := c.tidy(ctx)
	if err != nil {
		return nil, nil, err
	}
	v4, err = c.family(ctx, e, a, 4, a.Num4, a.IPv4Pools, a.HostReservedAttrIPv4s)
	if err == nil {
		v6, err = c.family(ctx, e, a, 6, a.Num6, a.IPv6Pools, a.HostReservedAttrIPv6s)
	}
	return v4, v6, err
}

// family assigns the addresses of one family.
func (c *ipamClient) family(ctx context.Context, e *ipset.Engine, a AutoAssignArgs, version, num int, pools []cnet.IPNet, r *HostReservedAttr) (*IPAMAssignments, error) {
	if num == 0 {
		return nil, nil
	}
	out := &IPAMAssignments{IPVersion: version, NumRequested: num, HostReservedAttr: r}
	args := ipset.AssignArgs{Owner: ipset.HostOwner(a.Hostname), Use: uses(a.IntendedUse), Partial: true}
	args.Head, args.Tail = ends(r)
	var err error
	if args.Pools, err = c.named(pools, version); err != nil {
		return nil, err
	}
	if args.Claim, err = claim(a.HandleID, a.Attrs); err != nil {
		return nil, err
	}
	if args.Num4 = num; version == 6 {
		args.Num4, args.Num6 = 0, num
	}
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		return nil, err
	}
	if args.MaxBlocks = cmp.Or(a.MaxBlocksPerHost, cfg.MaxBlocksPerHost, defaultBlocks); cfg.MaxBlocksPerHost > 0 {
		args.MaxBlocks = min(args.MaxBlocks, cfg.MaxBlocksPerHost)
	}
	got, err := e.AutoAssign(ctx, args)
	switch {
	case errors.Is(err, ipalloc.ErrFull), errors.Is(err, ipalloc.ErrLimit):
	case errors.Is(err, ipalloc.ErrNotFound):
		return nil, c.unqualified(a.Hostname)
	case r != nil && errors.Is(err, ipalloc.ErrInvalid):
		return nil, ErrStrictAffinity
	case err != nil:
		return nil, err
	}
	for _, al := range slices.Concat(got.V4, got.V6) {
		n := network(netip.PrefixFrom(al.Address, al.Block.Bits()))
		n.IP = cnet.MustParseIP(al.Address.String()).IP
		out.IPs = append(out.IPs, n)
	}
	return out, out.explain(got.Short, args.MaxBlocks, cfg.Strict)
}

// unqualified returns Calico's error for a host that no pool serves.
func (c *ipamClient) unqualified(host string) error {
	if selected, ok := c.labels(ipset.HostOwner(host)); ok && len(selected) == 0 {
		return fmt.Errorf("no configured Calico pools for node %s", host)
	}
	return ErrNoQualifiedPool
}

// explain adds Calico's message why there are fewer addresses than asked, and returns its error.
func (out *IPAMAssignments) explain(short []ipset.Shortage, limit int, strict bool) error {
	if len(out.IPs) == out.NumRequested {
		return nil
	}
	var pools []string
	for _, s := range short {
		if s.Reason == ipset.ReasonLimitReached {
			out.Msgs = []string{fmt.Sprintf("Need to allocate an IPAM block but could not - limit of %d blocks reached for this node", limit)}
			return ErrBlockLimit
		}
		pools = append(pools, s.Pool)
	}
	if out.Msgs = []string{fmt.Sprintf("No IPs available in pools: %v", pools)}; strict {
		out.Msgs = []string{"No more free affine blocks and strict affinity enabled"}
	}
	return nil
}

func (c *ipamClient) AssignIP(ctx context.Context, a AssignIPArgs) error {
	e, err := c.sync(ctx)
	if err != nil {
		return err
	}
	args := ipset.AssignIPArgs{Address: address(a.IP), Owner: ipset.HostOwner(cmp.Or(a.Hostname, localHost)), Use: ipset.Workload}
	args.Head, args.Tail = ends(a.HostReservedAttr)
	if args.Claim, err = claim(a.HandleID, a.Attrs); err != nil {
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

func (c *ipamClient) ReleaseIPs(ctx context.Context, opts ...ReleaseOptions) ([]cnet.IP, error) {
	var list []ipset.Release
	for _, o := range opts {
		a, err := netip.ParseAddr(o.Address)
		if err != nil {
			return nil, err
		}
		r := ipset.Release{Address: a, Guard: ipset.Guard{Handle: o.Handle}}
		if o.SequenceNumber != nil {
			r.Guard.Seq = *o.SequenceNumber
		}
		list = append(list, r)
	}
	got, err := c.engine().ReleaseIPs(ctx, list...)
	if err == nil {
		_, err = c.tidy(ctx)
	}
	free := []cnet.IP{}
	for _, r := range got {
		switch r.Outcome {
		case ipset.WasFree:
			free = append(free, cnet.MustParseIP(r.Address.String()))
		case ipset.OwnerChanged:
			err = cmp.Or(err, error(cerrors.ErrorResourceUpdateConflict{Identifier: r.Address.String()}))
		}
	}
	return free, err
}

// tidy takes empty blocks from hosts that their pools do not select any more, which Calico does within other calls.
func (c *ipamClient) tidy(ctx context.Context) (*ipset.Engine, error) {
	e, err := c.sync(ctx)
	if err == nil {
		_, err = e.Operator().Sweep(ctx, ipset.SweepArgs{Unselected: true})
	}
	return e, err
}

func (c *ipamClient) GetAssignmentAttributes(ctx context.Context, ip cnet.IP) (map[string]string, *string, error) {
	al, err := c.engine().Lookup(ctx, address(ip))
	if err != nil {
		return nil, nil, cerrors.ErrorResourceDoesNotExist{Identifier: ip.String(), Err: err}
	}
	if al.Handle == "" {
		return al.Attributes.Map(), nil, nil
	}
	return al.Attributes.Map(), &al.Handle, nil
}

func (c *ipamClient) IPsByHandle(ctx context.Context, handle string) ([]cnet.IP, error) {
	got, err := c.engine().IPsByHandle(ctx, handle)
	if err == nil && len(got) == 0 {
		err = cerrors.ErrorResourceDoesNotExist{Identifier: handle}
	}
	return ips(got, func(al ipset.Allocation) netip.Addr { return al.Address }), err
}

func (c *ipamClient) ReleaseByHandle(ctx context.Context, handle string) error {
	got, err := c.engine().ReleaseByHandle(ctx, handle)
	if err == nil && len(got) == 0 {
		return cerrors.ErrorResourceDoesNotExist{Identifier: handle}
	}
	if err == nil {
		_, err = c.tidy(ctx)
	}
	return err
}

func (c *ipamClient) ClaimAffinity(ctx context.Context, cidr cnet.IPNet, host string) ([]cnet.IPNet, []cnet.IPNet, error) {
	e, err := c.sync(ctx)
	if err != nil {
		return nil, nil, err
	}
	pools, err := e.Pools(ctx)
	for _, p := range pools {
		if p.Prefix.Overlaps(prefix(cidr)) && prefix(cidr).Bits() > p.BlockBits {
			return nil, nil, fmt.Errorf("The requested CIDR (%s) is smaller than the minimum.", cidr.String())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	got, failed, err := e.ClaimAffinity(ctx, prefix(cidr), ipset.HostOwner(host))
	var failures []netip.Prefix
	for _, f := range failed {
		failures = append(failures, f.Block)
	}
	return networks(got), networks(failures), err
}

func (c *ipamClient) disown(ctx context.Context, host string, p netip.Prefix, mustBeEmpty bool) error {
	_, err := c.engine().DisownBlocks(ctx, ipset.DisownArgs{Prefix: p, Owner: ipset.HostOwner(host), OnlyEmpty: mustBeEmpty})
	return err
}

func (c *ipamClient) ReleaseAffinity(ctx context.Context, cidr cnet.IPNet, host string, mustBeEmpty bool) error {
	return c.disown(ctx, host, prefix(cidr), mustBeEmpty)
}

func (c *ipamClient) ReleaseHostAffinities(ctx context.Context, host string, mustBeEmpty bool) error {
	return c.disown(ctx, host, netip.Prefix{}, mustBeEmpty)
}

func (c *ipamClient) ReleasePoolAffinities(ctx context.Context, pool cnet.IPNet) error {
	_, err := c.engine().DisownBlocks(ctx, ipset.DisownArgs{Pool: pool.String()})
	return err
}

func (c *ipamClient) ReleaseBlockAffinity(ctx context.Context, b *model.AllocationBlock, mustBeEmpty bool) error {
	return c.disown(ctx, b.Host(), prefix(b.CIDR), mustBeEmpty)
}

func (c *ipamClient) GetIPAMConfig(ctx context.Context) (*IPAMConfig, error) {
	cfg, err := c.engine().Operator().Config(ctx)
	return &IPAMConfig{StrictAffinity: cfg.Strict, AutoAllocateBlocks: !cfg.NoAutoBlocks, MaxBlocksPerHost: cfg.MaxBlocksPerHost}, err
}

func (c *ipamClient) SetIPAMConfig(ctx context.Context, cfg IPAMConfig) error {
	return c.engine().Operator().SetConfig(ctx, ipset.Config{Strict: cfg.StrictAffinity, NoAutoBlocks: !cfg.AutoAllocateBlocks, MaxBlocksPerHost: cfg.MaxBlocksPerHost})
}

func (c *ipamClient) RemoveIPAMHost(ctx context.Context, host string) error {
	return c.disown(ctx, host, netip.Prefix{}, false)
}

func (c *ipamClient) GetUtilization(ctx context.Context, a GetUtilizationArgs) (list []*PoolUtilization, err error) {
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

func (c *ipamClient) EnsureBlock(ctx context.Context, a BlockArgs) (v4, v6 *cnet.IPNet, err error) {
	e, err := c.sync(ctx)
	if err != nil {
		return nil, nil, err
	}
	one := func(version int, nets []cnet.IPNet, r *HostReservedAttr) (*cnet.IPNet, error) {
		args := ipset.AssignArgs{Owner: ipset.HostOwner(a.Hostname), Num4: 1, Use: ipset.Workload}
		if version == 6 {
			args.Num4, args.Num6 = 0, 1
		}
		args.Head, args.Tail = ends(r)
		if args.Pools, err = c.named(nets, version); err != nil {
			return nil, err
		}
		got, err := e.EnsureBlock(ctx, args)
		if err != nil || len(got) == 0 {
			return nil, err
		}
		n := network(got[0])
		return &n, nil
	}
	if a.HostReservedAttrIPv4s != nil || a.IPv4Pools != nil {
		if v4, err = one(4, a.IPv4Pools, a.HostReservedAttrIPv4s); err != nil {
			return nil, nil, err
		}
	}
	if a.HostReservedAttrIPv6s != nil || a.IPv6Pools != nil {
		v6, err = one(6, a.IPv6Pools, a.HostReservedAttrIPv6s)
	}
	return v4, v6, err
}
