package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// errOverlap is the error of a pool whose addresses another one has.
var errOverlap = errors.New("overlaps another pool")

// parse returns the subnet of the pool, and which addresses of it are given out: not the gateway, and not the network and
// broadcast addresses or the subnet-router address.
func (o *pool) parse() (subnet netip.Prefix, set *netipx.IPSet, err error) {
	var b netipx.IPSetBuilder
	for _, text := range o.Spec.Addresses {
		r, err := parseRange(text)
		if err != nil {
			return subnet, nil, err
		}
		b.AddRange(r)
	}
	set, err = b.IPSet()
	if err != nil || len(set.Ranges()) == 0 {
		return subnet, nil, errors.Join(err, errors.New("the pool has no addresses"))
	}
	all := set.Ranges()
	if subnet, err = all[0].From().Prefix(o.Spec.Prefix); err != nil {
		return subnet, nil, err
	}
	if last := all[len(all)-1]; !subnet.Contains(last.To()) {
		return subnet, nil, fmt.Errorf("%s is not in %s", last, subnet)
	}
	if o.Spec.Gateway != "" {
		gateway, err := netip.ParseAddr(o.Spec.Gateway)
		if err != nil {
			return subnet, nil, err
		}
		b.Remove(gateway)
	}
	if subnet.Addr().BitLen()-subnet.Bits() > 1 {
		b.Remove(subnet.Addr())
		if subnet.Addr().Is4() {
			b.Remove(netipx.RangeOfPrefix(subnet).To())
		}
	}
	if set, err = b.IPSet(); err == nil && len(set.Ranges()) == 0 {
		err = errors.New("the pool has no addresses that can be given out")
	}
	return subnet, set, err
}

// parseRange reads an address, a range or a prefix.
func parseRange(text string) (netipx.IPRange, error) {
	switch {
	case strings.Contains(text, "-"):
		return netipx.ParseIPRange(text)
	case strings.Contains(text, "/"):
		p, err := netip.ParsePrefix(text)
		return netipx.RangeOfPrefix(p), err
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netipx.IPRange{}, err
	}
	return netipx.IPRangeFrom(a, a), nil
}

// size returns the number of addresses of a set, as the API can hold it.
func size(set *netipx.IPSet) int64 {
	var n uint64
	for _, p := range set.Prefixes() {
		bits := p.Addr().BitLen() - p.Bits()
		if bits >= 63 {
			return math.MaxInt64
		}
		if n += 1 << bits; n > math.MaxInt64 {
			return math.MaxInt64
		}
	}
	return int64(n)
}

// admission is a pool whose ranges the store knows.
type admission struct {
	UID        types.UID
	Generation int64
	Ranges     []string
}

// rangesKey returns the key of the record of the admitted pools of a namespace, or of the global ones.
func rangesKey(k key) string { return "Ranges/" + k.namespace }

// admit records the ranges of a pool, unless a pool of the same namespace has some of them, or a newer form of the pool has been
// admitted. One record has the ranges of all pools of a namespace, so two replicas cannot admit two that overlap.
func (p *provider) admit(ctx context.Context, k key, o *pool, set *netipx.IPSet) error {
	return p.admissions(ctx, k, func(all map[string]admission) (bool, error) {
		mine := all[k.name]
		switch {
		case mine.UID == o.UID && mine.Generation == o.Generation:
			return false, nil
		case mine.UID == o.UID && mine.Generation > o.Generation:
			return false, errors.New("a newer form of the pool is known")
		case mine.UID != "" && mine.UID != o.UID:
			if there, err := p.poolExists(ctx, k, o.UID); err != nil || !there {
				return false, errors.Join(err, errors.New("another pool of that name is known"))
			}
		}
		for name, other := range all {
			if name == k.name || !other.overlaps(set) {
				continue
			}
			if there, err := p.poolExists(ctx, key{k.resource, k.namespace, name}, other.UID); err != nil {
				return false, err
			} else if there {
				return false, fmt.Errorf("%w: %s", errOverlap, name)
			}
			delete(all, name)
		}
		now := admission{UID: o.UID, Generation: o.Generation}
		for _, r := range set.Ranges() {
			now.Ranges = append(now.Ranges, r.String())
		}
		all[k.name] = now
		return true, nil
	})
}

// withdraw forgets the ranges of a pool.
func (p *provider) withdraw(ctx context.Context, k key, uid types.UID) error {
	return p.admissions(ctx, k, func(all map[string]admission) (bool, error) {
		if all[k.name].UID != uid {
			return false, nil
		}
		delete(all, k.name)
		return true, nil
	})
}

// admissions changes the record of the admitted pools beside k. Another replica's change has it begin again.
func (p *provider) admissions(ctx context.Context, k key, change func(map[string]admission) (bool, error)) error {
	for {
		recs, err := p.store.Get(ctx, nil, rangesKey(k))
		if err != nil {
			return err
		}
		all := map[string]admission{}
		if recs[0].Rev != 0 {
			if err := json.Unmarshal([]byte(recs[0].Value), &all); err != nil {
				return fmt.Errorf("%w: record %q: %w", ipalloc.ErrCorrupt, rangesKey(k), err)
			}
		}
		if changed, err := change(all); err != nil || !changed {
			return err
		}
		op := store.Op{Kind: store.Delete, Key: rangesKey(k), Expect: recs[0].Rev}
		if len(all) > 0 {
			data, err := json.Marshal(all)
			if err != nil {
				return err
			}
			op.Kind, op.Value = store.Put, string(data)
		}
		if _, err = p.store.Commit(ctx, []store.Op{op}); !errors.Is(err, ipalloc.ErrConflict) {
			return err
		}
	}
}

func (a *admission) overlaps(set *netipx.IPSet) bool {
	for _, text := range a.Ranges {
		if r, err := netipx.ParseIPRange(text); err == nil && set.OverlapsRange(r) {
			return true
		}
	}
	return false
}

// poolExists asks the API server whether a pool of that name has that UID.
func (p *provider) poolExists(ctx context.Context, k key, uid types.UID) (bool, error) {
	o, err := live[pool](ctx, p, k)
	return err == nil && o != nil && o.UID == uid, err
}
