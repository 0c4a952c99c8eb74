package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// yearIdle is how long a block is empty before it is taken from a host that has another one.
const yearIdle = 30 * time.Minute

// oursYear is an engine on a store in memory, with the clock of the simulation.
type oursYear struct {
	*oursEngine
	db  *countingStore
	now time.Time
}

func newOursYear() *oursYear {
	o := &oursYear{db: &countingStore{Store: store.NewMemory()}, now: time.Unix(1, 0)}
	o.oursEngine = &oursEngine{must(ipset.New(o.db, ipset.Options{Now: func() time.Time { return o.now }})), o.db}
	check(o.Operator().SetConfig(bg, ipset.Config{}))
	return o
}

func (o *oursYear) addPool(p netip.Prefix, blockBits int) error {
	return o.AddPool(bg, ipset.Pool{Name: p.String(), Prefix: p, BlockBits: blockBits})
}

func (o *oursYear) hostComes(string)      {}
func (o *oursYear) hostGoes(string) error { return nil }

func (o *oursYear) free(h holder) error {
	as, err := o.ReleaseByHandle(bg, h.handle)
	if err == nil && !slices.Equal(as, []netip.Addr{h.addr}) {
		err = fmt.Errorf("%s holds %v, released are %v", h.handle, h.addr, as)
	}
	return err
}

func (o *oursYear) remove(host string, held []holder) error {
	as, _, err := o.RemoveHost(bg, alloc.HostOwner(host))
	slices.SortFunc(as, netip.Addr.Compare)
	if err == nil && !slices.EqualFunc(as, held, func(a netip.Addr, h holder) bool { return a == h.addr }) {
		err = fmt.Errorf("%s holds %v, released are %v", host, held, as)
	}
	return err
}

func (o *oursYear) tidy(now time.Time, _ map[netip.Prefix]int) []func() error {
	o.now = now
	return []func() error{func() error {
		_, err := o.Operator().Sweep(bg, ipset.SweepArgs{IdleAfter: yearIdle, Keep: 1})
		return err
	}}
}

func (o *oursYear) traffic() (trips, bytes int) { return o.db.calls, o.db.moved }

func (o *oursYear) look() stored {
	s := stored{handles: map[netip.Addr]string{}, blocks: map[netip.Prefix]string{}}
	for al, err := range o.Allocations(bg, netip.Prefix{}) {
		check(err)
		s.handles[al.Address] = al.Handle
	}
	for _, p := range must(o.Utilization(bg)) {
		for _, b := range p.Blocks {
			s.blocks[b.Prefix] = b.Owner.Name
		}
	}
	recs, _, err := o.db.Store.List(bg, store.Range{})
	check(err)
	for _, r := range recs {
		s.records, s.bytes = s.records+1, s.bytes+len(r.Key)+len(r.Value)
	}
	return s
}

// calicoYear is Calico's client with the calls that its CNI plugin and its kube-controllers make. What these have in caches that
// follow the store, as affinities of blocks and addresses of hosts, costs nothing here.
type calicoYear struct {
	*calicoEngine
	b       *backend
	leaving []string              // hosts that are gone, and have blocks from which others borrow
	empty   map[netip.Prefix]bool // blocks that held nothing at the last tick
}

func newCalicoYear() *calicoYear {
	b := newBackend(coded)
	return &calicoYear{calicoEngine: &calicoEngine{calico: must(newCalico(b, nil)), hosts: map[string]bool{}}, b: b}
}

func (c *calicoYear) addPool(p netip.Prefix, blockBits int) error {
	c.pools = append(c.pools, calicoPool(fmt.Sprintf("pool-%02d", len(c.pools)), p.String(), blockBits))
	return nil
}

func (c *calicoYear) hostComes(host string) { c.known(host) }

func (c *calicoYear) hostGoes(host string) error {
	if !c.hosts[host] {
		return nil
	}
	delete(c.hosts, host)
	_, err := c.b.Delete(bg, model.ResourceKey{Kind: v3.KindNode, Name: host}, "")
	return err
}

func (c *calicoYear) free(h holder) error { return c.releaseHandle(h.handle) }

// remove does what kube-controllers do when a node is gone: a release of each of its addresses, then of the blocks. Blocks from
// which others borrow stay, and are tried again.
func (c *calicoYear) remove(host string, held []holder) error {
	for _, h := range held {
		if err := c.release(lease{text: h.addr.String()}, h.handle); err != nil {
			return err
		}
	}
	return c.leave(host)
}

func (c *calicoYear) leave(host string) error {
	err := c.ReleaseHostAffinities(bg, host, true)
	if err != nil && strings.Contains(err.Error(), "is not empty") {
		c.leaving = append(c.leaving, host)
		return nil
	}
	return err
}

// tidy does what kube-controllers do every 5 minutes: it takes blocks that have been empty for a while from hosts that have others,
// and tries again to take those of hosts that are gone.
func (c *calicoYear) tidy(_ time.Time, used map[netip.Prefix]int) (calls []func() error) {
	has, before := map[string]int{}, c.empty
	c.empty = map[netip.Prefix]bool{}
	var empty []model.BlockAffinityKey
	c.affinities(func(k model.BlockAffinityKey) {
		has[k.Host]++
		if p := prefixOf(k.CIDR); used[p] == 0 {
			c.empty[p] = true
			if before[p] {
				empty = append(empty, k)
			}
		}
	})
	for _, k := range empty {
		if has[k.Host]--; has[k.Host] == 0 {
			continue // its last one
		}
		affinity := "host:" + k.Host
		calls = append(calls, func() error {
			return c.ReleaseBlockAffinity(bg, &model.AllocationBlock{CIDR: k.CIDR, Affinity: &affinity}, true)
		})
	}
	for _, host := range c.leaving {
		calls = append(calls, func() error { return c.leave(host) })
	}
	c.leaving = nil
	return calls
}

// affinities calls f with whose each block is.
func (c *calicoYear) affinities(f func(model.BlockAffinityKey)) {
	const root = "/calico/ipam/v2/host/"
	c.b.tree.AscendGreaterOrEqual(&record{path: root}, func(r *record) bool {
		if !strings.HasPrefix(r.path, root) {
			return false
		}
		f(r.key.(model.BlockAffinityKey))
		return true
	})
}

func (c *calicoYear) traffic() (trips, bytes int) { return int(c.b.calls()), int(c.b.moved.Load()) }

func (c *calicoYear) look() stored {
	s := stored{handles: map[netip.Addr]string{}, blocks: map[netip.Prefix]string{}}
	c.b.tree.Ascend(func(r *record) bool {
		if !strings.HasPrefix(r.path, "/calico/ipam/") {
			return true // a node
		}
		s.records, s.bytes = s.records+1, s.bytes+len(r.path)+len(r.json)
		key, ok := r.key.(model.BlockKey)
		if !ok {
			return true
		}
		b := must(c.b.unpack(r, key)).Value.(*model.AllocationBlock)
		s.blocks[prefixOf(b.CIDR)] = b.Host()
		for i, at := range b.Allocations {
			if at != nil {
				s.handles[addrOf(b.OrdinalToIP(i))] = *b.Attributes[*at].AttrPrimary
			}
		}
		return true
	})
	return s
}
