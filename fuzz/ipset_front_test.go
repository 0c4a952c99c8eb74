package fuzz

import (
	"context"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// front is the calls that the documents teach first.
func (r *ipamReplay) front(op int, e *ipset.Engine, tr *model.Trace) {
	host, handle := alloc.HostOwner(r.host(tr)), fmt.Sprint("p", tr.Below(6))
	if op == 1 {
		want := r.m.ReleaseHandleOf(handle, host.String())
		if got, err := e.ReleaseByHandle(context.Background(), handle, host); err != nil || !slices.Equal(got, want) {
			r.t.Fatalf("release %s of %s: %v, %v, want %v", handle, host, got, err, want)
		}
		return
	}
	var pools []string
	if n := int(tr.Below(12)); n < len(r.m.Pools) {
		pools = append(pools, r.m.Pools[n].Name)
		if more := r.m.Pools[len(r.m.Pools)-1-n].Name; tr.Below(2) == 0 && more != pools[0] {
			pools = append(pools, more)
		}
	}
	r.assign(e, host, handle, pools)
}

// assign calls Assign, which returns what the handle holds, or assigns an address.
func (r *ipamReplay) assign(e *ipset.Engine, host alloc.Owner, handle string, pools []string) {
	before := r.m.Holds(handle)
	al, err := e.Assign(context.Background(), host, handle, pools...)
	w := r.wanted(host, handle, alloc.Share{}, 0)
	w.Pools, r.m.Choose = pools, chooseOf([]alloc.Allocation{al})
	want, why := r.m.Assign(w)
	refused := ipamRefusals[why].is(err)
	for _, more := range []string{"short, cooling", "short, reserved", "short, limit"} { // where all pools have one reason
		refused = refused || why == "short" && ipamRefusals[more].is(err)
	}
	if !refused || why == "" && (al.Address != want || al.Host != host || al.Handle != handle) {
		r.t.Fatalf("assign %s for %s from %v, which holds %v: %+v, %v, want %s, %q", handle, host, pools, before, al, err, want, why)
	}
	if err == nil && !slices.Contains(before, al.Address) {
		r.fresh(al)
	}
}
