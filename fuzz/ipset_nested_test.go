package fuzz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// nestedPools lie in one another, three deep; with some block sizes they cannot.
var nestedPools = []ipamPool{
	{"a", "10.0.0.0/28", [2]int{30, 29}, 0}, {"d", "fd00::/124", [2]int{126, 127}, 0},
	{"b", "10.0.0.8/29", [2]int{31, 30}, 20 * time.Second}, {"c", "10.0.0.12/30", [2]int{32, 31}, 0},
	{"e", "10.0.0.0/30", [2]int{31, 30}, 0}, {"f", "fd00::8/125", [2]int{127, 126}, 0},
}

// pools changes the twin's pools and the engine's. A change that leaves pools which cannot lie in one another must fail and change
// nothing.
func (r *ipamReplay) pools(change func([]model.IPSetPool) []model.IPSetPool, call func() error) {
	r.t.Helper()
	before := slices.Clone(r.m.Pools)
	r.m.Pools = change(r.m.Pools)
	slices.SortFunc(r.m.Pools, func(a, b model.IPSetPool) int {
		return cmp.Or(b.Priority-a.Priority, int(a.Name[0])-int(b.Name[0]))
	})
	err := call()
	if !r.m.Nests() {
		if r.m.Pools = before; !errors.Is(err, ipalloc.ErrInvalid) || !strings.Contains(err.Error(), "whole blocks") {
			r.t.Fatalf("a nested pool off the grid: %v", err)
		}
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.m.Advance() // empty blocks of a former size go
}

// togglePool adds a pool, or removes it.
func (r *ipamReplay) togglePool(e *ipset.Engine, i int) {
	def := r.defs[i]
	j := slices.IndexFunc(r.m.Pools, func(p model.IPSetPool) bool { return p.Name == def.name })
	if j >= 0 {
		r.pools(func(ps []model.IPSetPool) []model.IPSetPool { return slices.Delete(ps, j, j+1) }, func() error {
			return e.RemovePool(context.Background(), def.name)
		})
		return
	}
	p := alloc.Pool{Name: def.name, Prefix: netip.MustParsePrefix(def.prefix), BlockBits: def.bits[0], Cooldown: def.cooldown}
	r.pools(func(ps []model.IPSetPool) []model.IPSetPool {
		return append(ps, model.IPSetPool{Name: p.Name, Prefix: p.Prefix, Bits: p.BlockBits, Cooldown: p.Cooldown})
	}, func() error { return e.AddPool(context.Background(), p) })
}

// changePool switches the block size of a pool, its limit of blocks and its priority, or whether it is disabled.
func (r *ipamReplay) changePool(e *ipset.Engine, i int, disable bool) {
	def := r.defs[i]
	j := slices.IndexFunc(r.m.Pools, func(p model.IPSetPool) bool { return p.Name == def.name })
	if j < 0 {
		return
	}
	p := r.m.Pools[j]
	if disable {
		p.Disabled = !p.Disabled
	} else {
		p.Bits = def.bits[0] + def.bits[1] - p.Bits
		p.Most, p.Priority = (p.Most+1)%5, (p.Priority+p.Most)%3
		p.Order = (p.Order + p.Bits) % 3
	}
	r.pools(func(ps []model.IPSetPool) []model.IPSetPool { ps[j] = p; return ps }, func() error {
		return e.UpdatePool(context.Background(), alloc.Pool{Name: p.Name, Prefix: p.Prefix, BlockBits: p.Bits, Cooldown: p.Cooldown, Disabled: p.Disabled, MaxBlocksPerHost: p.Most, Priority: p.Priority, Order: alloc.Order(p.Order)})
	})
}

// FuzzNestedPools is FuzzIPAM with pools that lie in one another.
func FuzzNestedPools(f *testing.F) {
	for i := range 8 {
		f.Add(randomBytes(uint64(i)+200, 80))
	}
	f.Fuzz(func(t *testing.T, data []byte) { replayNestedTest(t, data[:min(len(data), 160)]) })
}

func replayNestedTest(t *testing.T, data []byte) { replayIPAM(t, nestedPools, [2]int{0, 1}, data) }

// chooseOf returns for a pool of random order what the engine chose, as far as it may be chosen. Where the engine assigned nothing, it
// does not matter.
func chooseOf(got []alloc.Allocation) func(free []netip.Addr, n int) []netip.Addr {
	return func(free []netip.Addr, n int) (out []netip.Addr) {
		for _, al := range got {
			if len(out) < n && slices.Contains(free, al.Address) {
				out = append(out, al.Address)
			}
		}
		for _, a := range free {
			if len(out) < n && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		return out
	}
}

func TestNestedPoolsAgainstTwin(t *testing.T) {
	for seed := range seeds.Each(t, 120, 120) {
		replayNestedTest(t, randomBytes(seed+3000, 600))
	}
}

// nestedOps are what happens to an outer pool, 0, and one in it, 1. Each has an engine of its own, with what that has cached.
var nestedOps = []func(r *ipamReplay, e *ipset.Engine){
	func(r *ipamReplay, e *ipset.Engine) { r.assignSome(e, "h0", 3) },
	func(r *ipamReplay, e *ipset.Engine) { r.assignSome(e, "h1", 16) },
	func(r *ipamReplay, e *ipset.Engine) { r.assignNamed(e, "h0", 1) },
	func(r *ipamReplay, e *ipset.Engine) { r.assignNamed(e, "h1", 0) },
	func(r *ipamReplay, e *ipset.Engine) {
		r.m.ReleaseHandle("p-h1")
		if _, err := e.ReleaseByHandle(r.t.Context(), "p-h1"); err != nil {
			r.t.Fatal(err)
		}
	},
	func(r *ipamReplay, e *ipset.Engine) {
		r.m.ReleaseHost("host:h1", false)
		if _, err := e.DisownBlocks(r.t.Context(), alloc.DisownArgs{Owner: alloc.HostOwner("h1")}); err != nil {
			r.t.Fatal(err)
		}
	},
	func(r *ipamReplay, e *ipset.Engine) {
		r.claim(e, "h2", netip.MustParsePrefix(r.defs[1].prefix).Addr())
	},
	func(r *ipamReplay, e *ipset.Engine) { r.togglePool(e, 1) },
	func(r *ipamReplay, e *ipset.Engine) { r.togglePool(e, 0) },
	func(r *ipamReplay, e *ipset.Engine) { r.changePool(e, 0, false) },
	func(r *ipamReplay, e *ipset.Engine) { r.changePool(e, 1, false) },
	func(r *ipamReplay, e *ipset.Engine) { r.changePool(e, 1, true) },
	func(r *ipamReplay, e *ipset.Engine) { r.m.Step(time.Minute) },
}

// assignSome assigns as many IPv4 addresses as there are, up to n.
func (r *ipamReplay) assignSome(e *ipset.Engine, host string, n int) {
	a := alloc.AssignArgs{Owner: alloc.HostOwner(host), Num4: n, Partial: true}
	a.Handle = "p-" + host
	r.autoAssign(e, a, netip.Addr{}, false, false)
}

// assignNamed assigns the first address of a pool by name.
func (r *ipamReplay) assignNamed(e *ipset.Engine, host string, pool int) {
	a := alloc.AssignIPArgs{Address: netip.MustParsePrefix(r.defs[pool].prefix).Addr(), Owner: alloc.HostOwner(host)}
	a.Handle = "p-" + host
	r.assignIP(e, a)
}

// TestNestedPoolsExhaustively runs every pair of operations on a /28 with every placement of a pool in it, with every block size of
// both, from an empty and from a half full outer pool, and after one whose blocks are larger than the inner pool is gone.
func TestNestedPoolsExhaustively(t *testing.T) {
	const outer = "10.0.0.0/28"
	n := len(nestedOps)
	for outerBits := 28; outerBits <= 32; outerBits++ {
		for at := range 16 {
			for length := 29; length <= 31; length++ {
				inner := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(at)}), length)
				if inner != inner.Masked() {
					continue
				}
				for innerBits := length; innerBits <= 32; innerBits++ {
					if testing.Short() && (at+length+innerBits+outerBits)%4 != 0 {
						continue
					}
					defs := []ipamPool{
						{"a", outer, [2]int{outerBits, 28 + (outerBits-27)%5}, 0},
						{"b", inner.String(), [2]int{innerBits, length + (innerBits-length+1)%(33-length)}, 0},
					}
					starts := 2
					if outerBits < length {
						starts = 3
					}
					for seq := range starts * n * n {
						runNested(t, defs, seq%starts, seq/starts%n, seq/starts/n)
					}
				}
			}
		}
	}
}

func runNested(t *testing.T, defs []ipamPool, start int, ops ...int) {
	defer func() {
		if t.Failed() {
			fmt.Println("sequence:", defs, start, ops)
		}
	}()
	r := newIPAMReplay(t, defs, store.NewMemory())
	r.togglePool(r.e[0], 0)
	if start > 0 {
		r.assignSome(r.e[1], "h1", 7)
	}
	if start == 2 {
		r.changePool(r.e[0], 0, false)
	}
	r.togglePool(r.e[0], 1)
	if start == 2 {
		r.togglePool(r.e[0], 0)
	}
	for i, op := range ops {
		nestedOps[op](r, r.e[(i+1)%2])
		r.m.Advance()
	}
	r.assignSome(r.e[0], "h0", 16)
	r.compare(ops[len(ops)-1])
}
