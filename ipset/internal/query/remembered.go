package query

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What outlives a holding has a reason that an operator can see.

// Remembered carries out the call of that name.
func (e *Reader) Remembered(ctx context.Context) iter.Seq2[alloc.Remembered, error] {
	return func(yield func(alloc.Remembered, error) bool) {
		fail := func(err error) { yield(alloc.Remembered{}, cause.Wrap(ipalloc.Error{Op: "list", Err: err})) }
		for i, kind := range [...]string{record.KindRequest, record.KindSticky} {
			for recs, err := range e.Pages(ctx, store.Range{From: kind, To: record.EndOfMemos(kind)}) {
				if err != nil {
					fail(err)
					return
				}
				for _, r := range recs {
					m, err := record.DecodeMemo(r.Key, r.Value, true)
					if err != nil {
						fail(err)
						return
					}
					is := alloc.Remembered{Kind: alloc.RememberedRequest + alloc.RememberedKind(i), Name: r.Key[len(kind):], At: wire.Unstamp(m.At)}
					if m.Digest == record.Withdrawn {
						is.Kind = alloc.RememberedWithdrawn
					} else if from, ok := strings.CutPrefix(r.Key, record.KindRename); ok {
						of, err1 := block.OwnerOf(from)
						to, err2 := block.OwnerOf(m.Digest)
						if err := cmp.Or(err1, err2); err != nil {
							fail(err)
							return
						}
						is.Kind, is.Name = alloc.RememberedRename, of.String()+" to "+to.String()
					}
					for _, id := range m.Ids {
						is.Addresses = append(is.Addresses, id.Addr())
					}
					if !yield(is, nil) {
						return
					}
				}
			}
		}
		for al, err := range e.Allocations(ctx, netip.Prefix{}) {
			if err != nil {
				fail(err)
				return
			}
			is := alloc.Remembered{Kind: alloc.RememberedCooling, Name: al.Handle, At: al.Since, Until: al.Until, Addresses: []netip.Addr{al.Address}}
			if al.Cooling && !yield(is, nil) {
				return
			}
		}
	}
}
