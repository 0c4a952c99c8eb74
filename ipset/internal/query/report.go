package query

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// The first question after an assignment that failed is about the blocks, the addresses and the limits of the host. The counts come
// from the same catalog and lists as the decision did.

// Hosts carries out the call of that name.
func (e *Reader) Hosts(ctx context.Context) ([]alloc.HostReport, error) {
	cat, err := e.ReadCatalog(ctx)
	if err != nil {
		return nil, err
	}
	us, err := e.Utilization(ctx)
	if err != nil {
		return nil, err
	}
	reports, inPool := make(map[alloc.Owner]*alloc.HostReport), make(map[alloc.Owner]map[string]int)
	of := func(o alloc.Owner) *alloc.HostReport {
		if reports[o] == nil {
			reports[o], inPool[o] = &alloc.HostReport{Owner: o}, make(map[string]int)
		}
		return reports[o]
	}
	owners := make(map[netip.Prefix]alloc.Owner)
	for _, u := range us {
		for _, b := range u.Blocks {
			if b.Owner.Kind == alloc.Nobody {
				continue
			}
			owners[b.Prefix] = b.Owner
			r := of(b.Owner)
			r.Blocks++
			r.Used, r.Cooling, r.Available = r.Used.Add(b.Used), r.Cooling.Add(b.Cooling), r.Available.Add(b.Available)
			inPool[b.Owner][u.Pool]++
		}
	}
	for b, err := range e.Borrowings(ctx) {
		if err != nil {
			return nil, cause.Wrap(ipalloc.Error{Op: "report", Err: err})
		}
		owner := owners[b.Block]
		if owner == b.Host {
			continue // the block became its own since
		}
		of(b.Host).Borrowed++
		if owner.Kind != alloc.Nobody {
			of(owner).Lent++
		}
	}
	out := make([]alloc.HostReport, 0, len(reports))
	for o, r := range reports {
		if limit := cat.Config.MaxBlocksPerHost; limit > 0 {
			r.Limits = append(r.Limits, alloc.BlockLimit{Blocks: r.Blocks, Max: limit})
		}
		for _, p := range cat.Pools {
			if n := inPool[o][p.Name]; p.MaxBlocksPerHost > 0 && n > 0 {
				r.Limits = append(r.Limits, alloc.BlockLimit{Pool: p.Name, Blocks: n, Max: p.MaxBlocksPerHost})
			}
		}
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b alloc.HostReport) int {
		return cmp.Or(b.Used.Cmp(a.Used), strings.Compare(a.Owner.String(), b.Owner.String()))
	})
	return out, nil
}
