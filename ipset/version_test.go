package ipset

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// versioned returns what a record is, "" for one without a version: an entry of an index, which holds nothing else.
func versioned(r store.Record) string {
	switch {
	case r.Key == record.CatalogKey || r.Key == record.PoolsKey:
		return "catalog"
	case strings.HasPrefix(r.Key, record.KindBlock):
		return "block"
	case strings.HasPrefix(r.Key, record.KindAddress):
		return "address"
	case strings.HasPrefix(r.Key, record.KindPage):
		return "page"
	case strings.HasPrefix(r.Key, record.KindRequest), strings.HasPrefix(r.Key, record.KindSticky):
		return "memo"
	case r.Key == record.OwnerKey(alloc.HostOwner("h")):
		return "owner"
	}
	return ""
}

// otherVersions returns, for one record of each kind, the operations that add by to its version, as a commit of another release
// does: the catalog is two records, and the record of a block is written with those of its addresses.
func otherVersions(t *testing.T, by byte) map[string][]store.Op {
	other := func(r store.Record) store.Op {
		return store.Op{Kind: store.Put, Key: r.Key, Value: string([]byte{r.Value[0] + by}) + r.Value[1:], Expect: store.AnyRevision}
	}
	all := make(map[string][]store.Op)
	w := busy(t)
	for _, r := range w.list(store.Range{}) {
		if kind := versioned(r); kind == "catalog" || kind != "" && all[kind] == nil {
			all[kind] = append(all[kind], other(r))
		}
	}
	at, _ := record.ParseAddressKey(all["address"][0].Key)
	al, err := w.Lookup(bg, at)
	if err != nil {
		t.Fatal(err)
	}
	b := w.list(record.BlockRange(record.KindBlock, al.Block))[0]
	all["address"] = append(all["address"], store.Op{Kind: store.Put, Key: b.Key, Value: b.Value, Expect: store.AnyRevision})
	return all
}

// TestOtherVersion: a call that meets a record of another version fails with ErrVersion, and none writes that record.
func TestOtherVersion(t *testing.T) {
	h := alloc.HostOwner("h")
	again := want("h", 1, "sticky")
	again.Sticky, again.Request = true, "request"
	calls := map[string]func(e *Engine) error{
		"assign":  func(e *Engine) error { _, err := e.AutoAssign(bg, want("h", 1, "new")); return err },
		"first":   func(e *Engine) error { _, err := e.AutoAssign(bg, want("new", 1, "new")); return err },
		"again":   func(e *Engine) error { _, err := e.AutoAssign(bg, again); return err },
		"release": func(e *Engine) error { _, err := e.ReleaseByHandle(bg, "p"); return err },
		"disown":  func(e *Engine) error { _, err := e.DisownBlocks(bg, alloc.DisownArgs{Owner: h}); return err },
		"remove":  func(e *Engine) error { _, _, err := e.RemoveHost(bg, h); return err },
		"rename": func(e *Engine) error {
			_, _, err := e.Operator().RenameHost(bg, alloc.RenameArgs{From: h, To: alloc.HostOwner("new")})
			return err
		},
		"transfer": func(e *Engine) error {
			_, err := e.Transfer(bg, alloc.TransferArgs{From: "sticky", To: "new"})
			return err
		},
		"sweep":  func(e *Engine) error { _, err := e.Operator().Sweep(bg, alloc.SweepArgs{}); return err },
		"pools":  func(e *Engine) error { _, err := e.Pools(bg); return err },
		"use":    func(e *Engine) error { _, err := e.Utilization(bg); return err },
		"blocks": func(e *Engine) error { return last(e.Operator().Blocks(bg, netip.Prefix{})) },
		"all":    func(e *Engine) error { return last(e.Allocations(bg, netip.Prefix{})) },
		"handle": func(e *Engine) error { _, err := e.IPsByHandle(bg, "p"); return err },
	}
	for _, by := range []byte{1, 255} { // a later one, an earlier one
		for kind, ops := range otherVersions(t, by) {
			refused := 0
			for _, name := range slices.Sorted(maps.Keys(calls)) {
				w := busy(t)
				w.leaves()
				w.clock.add(1000 * time.Hour)
				if _, err := w.store.Commit(bg, ops); err != nil {
					t.Fatal(err)
				}
				err := calls[name](w.engine(w.store))
				if errors.Is(err, ipalloc.ErrVersion) {
					refused++
				} else if err != nil {
					t.Errorf("%s, %s: %v", kind, name, err)
				}
				if !w.has(ops[0]) {
					t.Errorf("%s, %s: written, with %v", kind, name, err)
				}
			}
			if refused == 0 || kind == "catalog" && refused < len(calls) {
				t.Errorf("%s: %d calls refused", kind, refused)
			}
		}
	}
}

// has reports whether a record is as an operation has written it.
func (w *world) has(op store.Op) bool {
	recs := w.list(store.Range{From: op.Key, To: op.Key + "\x00"})
	return len(recs) == 1 && recs[0].Value == op.Value
}

// TestCheckOfAnotherVersion: the check reports a record of another version. It plans no repair, which could write over what another
// release holds there, except of what follows from the blocks alone.
func TestCheckOfAnotherVersion(t *testing.T) {
	for _, by := range []byte{1, 255} { // a later one, an earlier one
		for kind, ops := range otherVersions(t, by) {
			w := busy(t)
			w.leaves()
			uses := w.used()
			if kind == "block" || kind == "address" || kind == "catalog" { // and what is met after them is damaged
				memo := w.list(store.Range{From: record.KindSticky, To: record.EndOf(record.KindSticky)})[0]
				w.restore([]store.Record{{Key: memo.Key, Value: "\x01"}}, memo.Key)
			}
			if _, err := w.store.Commit(bg, ops); err != nil {
				t.Fatal(err)
			}
			rep, err := w.engine(w.store).Operator().Check(bg, slices.Values(uses))
			if err != nil || !slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool {
				return slices.ContainsFunc(ops, func(op store.Op) bool { return op.Key == p.Key }) && strings.Contains(p.Detail, "version")
			}) || kind != "owner" && kind != "page" && len(rep.Repair) > 0 {
				t.Errorf("%s: %+v, %v", kind, rep, err)
			}
		}
	}
}
