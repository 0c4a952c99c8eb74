package world

import (
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
)

// After a restore, as README.md of package store advises it: Check with what is in use, AssignIP of what is not held, Check and
// Repair. What was assigned after the backup and is in use is not given again, and what was released since is free.
func TestRestoreAsAdvised(t *testing.T) {
	w := New(t)
	backup := w.Copy(t)
	e := w.Engine(t, w.DB, "", 0)
	got, err := e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: host("h2"), Num4: 2, Handle: "after the backup", Pools: []string{"tiny"}})
	must(t, err)
	_, err = e.ReleaseByHandle(t.Context(), "in ranged")
	must(t, err)
	uses := w.uses(t, w.DB, "")

	restored := backup.Engine(t, backup.DB, "", 0)
	r, err := restored.Operator().Check(t.Context(), slices.Values(uses))
	must(t, err)
	for _, p := range r.Problems {
		if p.Kind == audit.NotHeld {
			i := slices.IndexFunc(uses, func(u audit.InUse) bool { return u.Address == p.Addr })
			_, err := restored.AssignIP(t.Context(), alloc.AssignIPArgs{Address: p.Addr, Owner: host("h2"), Handle: uses[i].Handle})
			must(t, err)
		}
	}
	r, err = restored.Operator().Check(t.Context(), slices.Values(uses))
	must(t, err)
	_, err = restored.Operator().Repair(t.Context(), r.Repair)
	must(t, err)
	if held := w.uses(t, backup.DB, ""); !slices.Equal(held, uses) {
		t.Errorf("held after the procedure\n%v\nin use\n%v", held, uses)
	}
	for range 20 {
		again, err := restored.AutoAssign(t.Context(), alloc.AssignArgs{Owner: host("h2"), Num4: 1, Handle: "later", Pools: []string{"tiny"}})
		if err != nil {
			break
		}
		for _, al := range got.V4 {
			if again.V4[0].Address == al.Address {
				t.Fatalf("%v, which is in use, is given again", al.Address)
			}
		}
	}
}
