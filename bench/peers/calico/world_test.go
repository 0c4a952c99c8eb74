package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/btree"
	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// plan is a pool in the words of both.
type plan struct {
	name, prefix string
	blockBits    int
	selector     string // of hosts, in Calico's language
	hosts        selector.Selector
	uses         alloc.Use // 0 for both
}

// label requires a label of a host.
func label(key string, op selector.Operator, values ...string) selector.Selector {
	return selector.Selector{{Labels: []selector.Requirement{{Key: key, Op: op, Values: values}}}}
}

// plans are the pools of all worlds. Calico goes through the blocks of a host in the order of their texts: here it is
// that of their addresses. All pools of a world have as many blocks, so that one name of a host can stand for another: see
// aliases.
var plans = []plan{
	{"p1", "10.1.0.128/25", 28, "", nil, 0},
	{"p2", "10.2.0.192/27", 30, "", nil, 0},
	{"p3", "10.3.0.192/26", 29, `zone == "a"`, label("zone", selector.In, "a"), 0},
	{"p4", "10.4.0.224/27", 30, `!has(gpu)`, label("gpu", selector.DoesNotExist), alloc.Tunnel},
	{"p6", "fd00:6::180/121", 124, "", nil, 0},
	{"p7", "fd00:7::20/123", 126, `zone in {"a", "c"}`, label("zone", selector.In, "a", "c"), 0},
	{"q1", "10.5.0.128/25", 30, "", nil, 0},
	{"q2", "fd00:8::80/121", 126, "", nil, 0},
}

// blocks returns the number of blocks of a pool.
func (p *plan) blocks() int { return 1 << (p.blockBits - p.netip().Bits()) }

func (p *plan) netip() netip.Prefix { return netip.MustParsePrefix(p.prefix) }

func (p *plan) calico() v3.IPPool {
	c := calicoPool(p.name, p.prefix, p.blockBits)
	c.Spec.NodeSelector = p.selector
	if p.uses == alloc.Tunnel {
		c.Spec.AllowedUses = []v3.IPPoolAllowedUse{v3.IPPoolAllowedUseTunnel}
	}
	return c
}

func (p *plan) ours() alloc.Pool {
	return alloc.Pool{Name: p.name, Prefix: p.netip(), BlockBits: p.blockBits, Nodes: p.hosts, Uses: p.uses}
}

// hostNames are the machines of all worlds; one more, ghost, does not exist.
var hostNames = []string{"alpha", "beta", "gamma", "delta"}

const ghost = "ghost"

// aliases returns, by Calico's name of a host, ours for it: one with which our search for a free block begins at the same
// block of each pool of so many blocks as Calico's.
func aliases(blocks int) map[string]string {
	m := map[string]string{ghost: ghost}
	p := &plans[slices.IndexFunc(plans, func(p plan) bool { return p.blocks() == blocks })]
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err == nil {
		err = e.AddPool(bg, alloc.Pool{Name: "p", Prefix: p.netip(), BlockBits: p.blockBits})
	}
	if err != nil {
		panic(err)
	}
	for _, host := range hostNames {
		want := prefixOf(*calicoWalk(p.calico(), host)())
		for n := 0; m[host] == ""; n++ {
			alias := fmt.Sprint(host, "-", n)
			a := alloc.AssignArgs{Owner: alloc.HostOwner(alias), Num4: 1}
			if p.netip().Addr().Is6() {
				a.Num4, a.Num6 = 0, 1
			}
			first, err := e.DryRun().EnsureBlock(bg, a)
			if err != nil {
				panic(err)
			}
			if first[0] == want {
				m[host] = alias
			}
		}
	}
	return m
}

// ours returns our owner for a host of Calico's.
func (w *world) ours(host string) alloc.Owner { return alloc.HostOwner(w.aliases[host]) }

// owner returns our owner for Calico's affinity.
func (w *world) owner(affinity *string) alloc.Owner {
	if affinity == nil {
		return alloc.Owner{}
	}
	return w.ours(strings.TrimPrefix(*affinity, "host:"))
}

// variant is what a world begins with.
type variant struct {
	pools   []string
	config  alloc.Config
	windows bool // hosts keep 3 addresses at the beginning and 1 at the end of their blocks
}

var variants = []variant{
	{pools: []string{"p1"}},
	{pools: []string{"p1", "p2", "p6"}},
	{pools: []string{"p2"}, config: alloc.Config{Strict: true}},
	{pools: []string{"p1", "p3", "p4", "p6", "p7"}},
	{pools: []string{"p2", "p3", "p7"}, config: alloc.Config{Strict: true, MaxBlocksPerHost: 3}},
	{pools: []string{"p3", "p4"}, config: alloc.Config{Strict: true}},
	{pools: []string{"p1", "p3", "p6"}, config: alloc.Config{Strict: true}, windows: true},
	{pools: []string{"p2", "p7"}},
	{pools: []string{"q1"}},
	{pools: []string{"q1", "q2"}, config: alloc.Config{Strict: true}},
}

// world is Calico's client and an engine of ours on stores in memory, with the same pools, hosts and configuration.
type world struct {
	testing.TB
	variant
	backend *backend
	calico  *calico
	store   *store.Memory
	engine  *ipset.Engine
	now     time.Time
	menu    []plan                       // the pools that it may have
	aliases map[string]string            // our names of hosts
	pools   map[string]*alloc.Pool       // by name, as they are now
	labels  map[string]map[string]string // of hosts
	past    []alloc.Allocation           // that were at some time
	seqs    map[alloc.Allocation]uint64  // and Calico's sequence number of them
	steps   []string                     // what was done, for a failure
	seen    map[string]int               // divergences
}

func newWorld(t testing.TB, v variant) *world {
	w := &world{
		TB: t, variant: v, backend: newBackend(), store: store.NewMemory(), now: time.Unix(1e9, 0),
		pools: map[string]*alloc.Pool{}, labels: map[string]map[string]string{}, seqs: map[alloc.Allocation]uint64{}, seen: map[string]int{},
	}
	n := planOf(v.pools[0]).blocks()
	w.aliases = aliases(n)
	for _, p := range plans {
		if p.blocks() == n {
			w.menu = append(w.menu, p)
		}
	}
	w.calico = must(newCalico(w.backend, nil))
	w.open()
	for i, h := range hostNames {
		w.label(h, map[string]string{"zone": string(rune('a' + i%3))})
	}
	for _, name := range v.pools {
		w.addPool(name)
	}
	w.setConfig(v.config)
	return w
}

// open makes a new engine on the store.
func (w *world) open() {
	w.engine = must(ipset.New(w.store, ipset.Options{
		Now: func() time.Time { return w.now },
		Labels: func(o alloc.Owner) (map[string]string, bool) {
			if o.Kind == alloc.Virtual {
				return nil, true
			}
			for h, a := range w.aliases {
				if a == o.Name && h != ghost {
					return w.labels[h], true
				}
			}
			return nil, false
		},
	}))
}

func (w *world) label(host string, labels map[string]string) {
	w.labels[host] = labels
	check(w.calico.addHost(host, labels))
}

// planOf returns the plan of a pool.
func planOf(name string) *plan {
	return &plans[slices.IndexFunc(plans, func(p plan) bool { return p.name == name })]
}

func (w *world) addPool(name string) {
	p := planOf(name)
	w.calico.pools = append(w.calico.pools, p.calico())
	slices.SortFunc(w.calico.pools, func(a, b v3.IPPool) int { return strings.Compare(a.Name, b.Name) })
	pool := p.ours()
	check(w.engine.AddPool(bg, pool))
	w.pools[name] = &pool
}

func (w *world) removePool(name string) {
	w.calico.pools = slices.DeleteFunc(w.calico.pools, func(p v3.IPPool) bool { return p.Name == name })
	check(w.engine.RemovePool(bg, name))
	delete(w.pools, name)
}

func (w *world) disablePool(name string, disabled bool) {
	for i := range w.calico.pools {
		if w.calico.pools[i].Name == name {
			w.calico.pools[i].Spec.Disabled = disabled
		}
	}
	w.pools[name].Disabled = disabled
	check(w.engine.UpdatePool(bg, *w.pools[name]))
}

// setConfig configures both and reports whether they accept it.
func (w *world) setConfig(c alloc.Config) bool {
	w.Helper()
	terr := w.calico.SetIPAMConfig(bg, ipam.IPAMConfig{StrictAffinity: c.Strict, AutoAllocateBlocks: !c.NoAutoBlocks, MaxBlocksPerHost: c.MaxBlocksPerHost})
	ours := c
	if ours.MaxBlocksPerHost == 0 {
		ours.MaxBlocksPerHost = 20 // Calico's limit where none is configured
	}
	oerr := w.engine.Operator().SetConfig(bg, ours)
	if (terr == nil) != (oerr == nil) {
		w.fail("configuration %+v: Calico %v, ours %v", c, terr, oerr)
	}
	if oerr == nil {
		w.config = c
	}
	return oerr == nil
}

// poolAt returns the pool that an address lies in, nil for none.
func (w *world) poolAt(a netip.Addr) *alloc.Pool {
	for _, p := range w.pools {
		if p.Prefix.Contains(a) {
			return p
		}
	}
	return nil
}

// blocks returns Calico's blocks.
func (w *world) blocks() map[netip.Prefix]*model.AllocationBlock {
	m := map[netip.Prefix]*model.AllocationBlock{}
	for _, kvp := range must(w.backend.List(bg, model.BlockListOptions{}, "")).KVPairs {
		m[prefixOf(kvp.Key.(model.BlockKey).CIDR)] = kvp.Value.(*model.AllocationBlock)
	}
	return m
}

// moment is the state of a world.
type moment struct {
	tree  *btree.BTreeG[*record]
	store []byte
}

func (w *world) moment() moment {
	return moment{w.backend.tree.Clone(), must(w.store.MarshalBinary())}
}

// back takes a world back to a moment.
func (w *world) back(m moment) {
	w.backend.tree = m.tree
	w.store = must(store.RestoreMemory(m.store))
	w.open()
}

// diverged notes a divergence and takes the world back to where both were the same.
func (w *world) diverged(name string, m moment) {
	w.note(name)
	w.back(m)
}

// note notes a divergence that leaves both the same.
func (w *world) note(name string) {
	if !slices.ContainsFunc(divergences, func(d divergence) bool { return d.Case == name }) {
		w.fail("a divergence that is not in the table: %s", name)
	}
	w.seen[name]++
}

// fail ends the test with the way that led to it.
func (w *world) fail(format string, args ...any) {
	w.Helper()
	n := max(0, len(w.steps)-25)
	w.Fatalf("%s\nafter\n  %s", fmt.Sprintf(format, args...), strings.Join(w.steps[n:], "\n  "))
}

// step notes what is being done.
func (w *world) step(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

// addrsOf returns addresses in the form of net/netip.
func addrsOf(ips []cnet.IP) []netip.Addr {
	var list []netip.Addr
	for _, ip := range ips {
		list = append(list, addrOf(ip))
	}
	return list
}
