package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// request is one AutoAssign in the words of both.
type request struct {
	host, handle string
	n4, n6       int
	use          alloc.Use
	pools        []string
	maxBlocks    int
}

// answer is what one of them made of it.
type answer struct {
	v4, v6 []netip.Prefix // addresses, with the length of their block's prefix
	class  string         // of the error
	short  []alloc.Shortage
	given  []alloc.Allocation
}

func (a answer) String() string { return fmt.Sprintf("%v %v %q %v", a.v4, a.v6, a.class, a.short) }

func (w *world) request(tr *model.Trace) request {
	r := request{host: w.host(tr), handle: w.handle(tr), use: alloc.Workload, n4: int(tr.Below(7))}
	if tr.Below(6) == 0 {
		r.n4 *= 6
	}
	if tr.Below(3) == 0 {
		r.n6 = int(tr.Below(20))
	}
	if r.n4+r.n6 == 0 {
		r.n4 = 1
	}
	if tr.Below(5) == 0 {
		r.use = alloc.Tunnel
	}
	if tr.Below(6) == 0 {
		mask := tr.Uint()
		for i := range w.menu {
			// In the order of their names: Calico goes through pools in the order in which it is asked.
			if mask>>i&1 != 0 && w.pools[w.menu[i].name] != nil {
				r.pools = append(r.pools, w.menu[i].name)
			}
		}
		if r.n4 > 0 && !w.any(r.pools, 4) || r.n6 > 0 && !w.any(r.pools, 6) {
			r.pools = nil // Calico would take any of that family, here there is none
		}
	}
	if tr.Below(6) == 0 {
		r.maxBlocks = 1 + int(tr.Below(4))
	}
	return r
}

// any reports whether one of the pools is of a family.
func (w *world) any(pools []string, family int) bool {
	return slices.ContainsFunc(pools, func(name string) bool { return w.pools[name].Prefix.Addr().Is4() == (family == 4) })
}

// attrs are the attributes that a handle's addresses get, if any.
func attrs(handle string) map[string]string {
	if handle == "" || handle[len(handle)-1]%2 == 0 {
		return nil
	}
	return map[string]string{"pod": handle, "node": "n"}
}

// calicoHandle returns a handle in Calico's form.
func calicoHandle(h string) *string {
	if h == "" {
		return nil
	}
	return &h
}

// askCalico has Calico serve a request.
func (w *world) askCalico(r request) answer {
	reserved, _, _ := w.ends()
	args := ipam.AutoAssignArgs{
		Num4: r.n4, Num6: r.n6, HandleID: calicoHandle(r.handle), Attrs: attrs(r.handle), Hostname: r.host, MaxBlocksPerHost: r.maxBlocks,
		IntendedUse: v3.IPPoolAllowedUseWorkload, HostReservedAttrIPv4s: reserved, HostReservedAttrIPv6s: reserved,
	}
	if r.use == alloc.Tunnel {
		args.IntendedUse = v3.IPPoolAllowedUseTunnel
	}
	for _, name := range r.pools {
		p := planOf(name).netip()
		if p.Addr().Is4() {
			args.IPv4Pools = append(args.IPv4Pools, netOf(p))
		} else {
			args.IPv6Pools = append(args.IPv6Pools, netOf(p))
		}
	}
	v4, v6, err := w.calico.AutoAssign(bg, args)
	return answer{v4: given(v4), v6: given(v6), class: w.calicoClass(err)}
}

func given(a *ipam.IPAMAssignments) (list []netip.Prefix) {
	if a != nil {
		for _, n := range a.IPs {
			ones, _ := n.Mask.Size()
			list = append(list, netip.PrefixFrom(addrOf(cnet.IP{IP: n.IP}), ones))
		}
	}
	return list
}

// calicoClass names the kinds of errors of Calico.
func (w *world) calicoClass(err error) string {
	var none cerrors.ErrorResourceDoesNotExist
	var taken cerrors.ErrorResourceAlreadyExists
	var conflict cerrors.ErrorResourceUpdateConflict
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ipam.ErrBlockLimit):
		return "limit"
	case errors.Is(err, ipam.ErrNoQualifiedPool), strings.HasPrefix(err.Error(), "no configured Calico pools"), strings.Contains(err.Error(), "not in a configured pool"):
		return "no pool"
	case strings.HasPrefix(err.Error(), "the given pool"):
		return "unknown pool"
	case err.Error() == "failed to find or claim a block":
		return "no auto"
	case strings.Contains(err.Error(), "affinity does not match"), strings.Contains(err.Error(), "with no affinity"):
		return "strict"
	case strings.HasSuffix(err.Error(), "is not empty"):
		return "not empty"
	case errors.As(err, &none):
		return "not found"
	case errors.As(err, &taken):
		return "taken"
	case errors.As(err, &conflict):
		return "conflict"
	}
	w.fail("an error of Calico's that has no class: %v", err)
	return ""
}

// askOurs has our engine serve a request.
func (w *world) askOurs(r request) answer {
	_, head, tail := w.ends()
	got, err := w.engine.AutoAssign(bg, alloc.AssignArgs{
		Owner: w.ours(r.host), Num4: r.n4, Num6: r.n6, Use: r.use, Pools: r.pools, Blocks: alloc.BlockArgs{Max: r.maxBlocks, Head: head, Tail: tail}, Partial: true,
		Handle: r.handle, Attributes: must(alloc.NewAttributes(attrs(r.handle))),
	})
	a := answer{class: w.ourClass(err), short: got.Short}
	for _, al := range got.V4 {
		a.v4 = append(a.v4, al.Prefix())
	}
	for _, al := range got.V6 {
		a.v6 = append(a.v6, al.Prefix())
	}
	a.given = append(got.V4, got.V6...)
	return a
}

// remember keeps an allocation that both have made, to be released when it is long gone.
func (w *world) remember(al alloc.Allocation) {
	b := w.blocks()[al.Block]
	w.past = append(w.past, al)
	w.seqs[al] = b.GetSequenceNumberForOrdinal(must(b.IPToOrdinal(ipOf(al.Address))))
}

// ourClass names the kinds of our errors in the words of calicoClass.
func (w *world) ourClass(err error) string {
	for _, c := range []struct {
		is          error
		text, class string
	}{
		{nil, "", ""},
		{ipalloc.ErrNotFound, "no pool qualifies", "no pool"},
		{ipalloc.ErrNotFound, "no pool has the address", "no pool"},
		{ipalloc.ErrNotFound, "no such pool", "unknown pool"},
		{ipalloc.ErrNotFound, "no such owner", "not found"},
		{ipalloc.ErrOccupied, "affinity is strict", "strict"},
		{ipalloc.ErrInvalid, "strict affinity", "strict"},
		{ipalloc.ErrOccupied, ": occupied", "taken"},
		{ipalloc.ErrReserved, "", "taken"},
		{ipalloc.ErrLimit, "as many blocks", "limit"},
		{ipalloc.ErrInUse, "", "not empty"},
	} {
		if errors.Is(err, c.is) && (err == nil || strings.Contains(err.Error(), c.text)) {
			return c.class
		}
	}
	w.fail("an error of ours that has no class: %v", err)
	return ""
}

// claimClass is the class of the reason why a block was not claimed.
func (w *world) claimClass(err error) string {
	if errors.Is(err, ipalloc.ErrOccupied) && strings.Contains(err.Error(), "the block is another owner's") {
		return "owner"
	}
	return w.ourClass(err)
}

// autoAssign compares an AutoAssign.
func (w *world) autoAssign(tr *model.Trace) {
	r := w.request(tr)
	w.step("AutoAssign %+v", r)
	before := w.moment()
	blocks := w.blocks()
	theirs := w.askCalico(r)
	w.housekeeping(blocks, r.host)
	ours := w.askOurs(r)
	if w.judge(r, theirs, ours, before, blocks) {
		for _, al := range ours.given {
			w.remember(al)
		}
	}
}

// judge accepts two answers to a request that are the same or differ in a known way, and reports whether both did the same.
func (w *world) judge(r request, theirs, ours answer, before moment, blocks map[netip.Prefix]*calicoBlockRecord) bool {
	same := slices.Equal(theirs.v4, ours.v4) && slices.Equal(theirs.v6, ours.v6)
	switch {
	case w.adopts(blocks, r.host) && (ours.class == "" || ours.class == theirs.class):
		w.diverged(adoptsOrphans, before)
	case same && theirs.class == ours.class:
		return true
	case same && ours.class == "" && (theirs.class == "limit" || theirs.class == "no auto") && len(ours.v4)+len(ours.v6) < r.n4+r.n6:
		w.note(shortIsError)
		return true
	case same && theirs.class == "unknown pool" && ours.class == "no pool" && w.anyDisabled(r.pools):
		w.note(asksDisabled)
		return true
	case theirs.class == "unknown pool" && ours.class == "" && w.anyDisabled(r.pools):
		w.diverged(asksDisabled, before)
	case (theirs.class == "no pool" || theirs.class == "unknown pool" && w.anyDisabled(r.pools)) && ours.class == "no pool" && len(ours.v4) == 0 && len(theirs.v6) == 0:
		w.diverged(halfDone, before) // IPv4 addresses, and no pool for IPv6
	case (theirs.class == "limit" || theirs.class == "no auto") && r.n4 > 0 && r.n6 > 0 && len(theirs.v4) < r.n4 && theirs.v6 == nil && ours.class != "":
		w.diverged(halfDone, before) // IPv6 is not tried, which has no pool
	case (theirs.class == "limit" || theirs.class == "no auto") && slices.Equal(theirs.v4, ours.v4) && theirs.v6 == nil && len(theirs.v4) < r.n4:
		w.diverged(halfDone, before) // IPv6 is not tried
	case theirs.class == "limit" && !w.config.Strict && extends(theirs.v4, ours.v4) && (theirs.v6 == nil || extends(theirs.v6, ours.v6)) && w.foreign(r.host, ours, theirs):
		w.diverged(limitBorrows, before)
	case w.limited(r):
		w.diverged(limitPerPools, before)
	default:
		w.fail("Calico %v\nours   %v", theirs, ours)
	}
	return false
}

// extends reports whether b is a and more.
func extends(a, b []netip.Prefix) bool { return len(b) >= len(a) && slices.Equal(a, b[:len(a)]) }

func (w *world) anyDisabled(pools []string) bool {
	return slices.ContainsFunc(pools, func(name string) bool { return w.pools[name].Disabled })
}

// beyond returns what is in ours and not in theirs, which it extends.
func beyond(ours, theirs answer) []netip.Prefix {
	return slices.Concat(ours.v4[len(theirs.v4):], ours.v6[len(theirs.v6):])
}

// foreign reports whether all that we give beyond Calico lies in blocks of others, or, of a family that Calico did not try,
// anywhere.
func (w *world) foreign(host string, ours, theirs answer) bool {
	for _, p := range beyond(ours, theirs) {
		b := must(w.engine.Operator().BlockOf(bg, p.Addr()))
		if b.Owner() == w.ours(host) && (p.Addr().Is4() || theirs.v6 != nil) {
			return false
		}
	}
	return true
}

// adopts reports whether the host owns a block here that had no owner. Later answers may differ then, because the block counts
// towards the limit.
func (w *world) adopts(blocks map[netip.Prefix]*calicoBlockRecord, host string) bool {
	own := must(w.engine.BlocksOf(bg, w.ours(host)))
	return slices.ContainsFunc(own, func(p netip.Prefix) bool {
		b := blocks[p]
		return b != nil && b.Affinity == nil
	})
}

// limited reports whether the host has reached its limit here, where the blocks of all pools count, and Calico has given
// it one more.
func (w *world) limited(r request) bool {
	limit := 20
	if w.config.MaxBlocksPerHost > 0 {
		limit = w.config.MaxBlocksPerHost
	}
	if r.maxBlocks > 0 {
		limit = min(limit, r.maxBlocks)
	}
	theirs := 0
	for _, b := range w.blocks() {
		if b.Affinity != nil && b.Host() == r.host {
			theirs++
		}
	}
	ours := len(must(w.engine.BlocksOf(bg, w.ours(r.host))))
	return ours >= limit && theirs > ours
}

// housekeeping does here what Calico does in passing: it takes empty blocks from hosts that their pool does not select any
// more.
func (w *world) housekeeping(before map[netip.Prefix]*calicoBlockRecord, hosts ...string) {
	w.Helper()
	after := w.blocks()
	for p, b := range before {
		if after[p] != nil || b.Affinity == nil || len(hosts) > 0 && b.Host() != hosts[0] {
			continue
		}
		pool := w.poolAt(p.Addr())
		if pool == nil || pool.Disabled || w.selects(pool.Name, b.Host()) {
			w.fail("Calico deletes block %v of %s", p, b.Host())
		}
		got, err := w.engine.DisownBlocks(bg, alloc.DisownArgs{Prefix: p, Owner: w.owner(b.Affinity), OnlyEmpty: true})
		if err != nil || len(got) != 1 {
			w.fail("release %v: %v, %v", p, got, err)
		}
		w.note(selectorMoves)
	}
}

// selects reports whether a pool selects a host.
func (w *world) selects(pool, host string) bool {
	p := planOf(pool).calico()
	return must(ipam.SelectsNode(p, libapiv3.Node{ObjectMeta: metav1.ObjectMeta{Labels: w.labels[host]}}))
}

// assignIP compares an AssignIP.
func (w *world) assignIP(tr *model.Trace) {
	a, host, handle := w.address(tr), w.host(tr), w.handle(tr)
	w.step("AssignIP %v %s %q", a, host, handle)
	before := w.moment()
	held, _ := w.engine.Lookup(bg, a)
	b, _ := w.engine.Operator().BlockOf(bg, a)
	orphan := b != nil && b.Owner() == alloc.Owner{}
	reserved, head, tail := w.ends()
	terr := w.calico.AssignIP(bg, ipam.AssignIPArgs{IP: ipOf(a), HandleID: calicoHandle(handle), Attrs: attrs(handle), Hostname: host, HostReservedAttr: reserved})
	al, oerr := w.engine.AssignIP(bg, alloc.AssignIPArgs{
		Address: a, Owner: w.ours(host), Blocks: alloc.BlockArgs{Head: head, Tail: tail}, Handle: handle, Attributes: must(alloc.NewAttributes(attrs(handle))),
	})
	theirs, ours := w.calicoClass(terr), w.ourClass(oerr)
	switch {
	case theirs != "" && handle != "" && held.Handle == handle && (oerr == nil && al.Address == held.Address || ours == "strict"):
		w.diverged(ownNamed, before) // ours asks only whether the holding may move to the host
	case theirs == "strict" && orphan && ours != "strict": // ours adopts it, and says what else stands in the way
		w.diverged(adoptsOrphans, before)
	case theirs == ours && oerr == nil:
		w.remember(al)
	case theirs == "taken" && errors.Is(oerr, ipalloc.ErrReserved) && !w.sameBlocks():
		w.diverged(claimsInVain, before)
	case theirs == ours:
	case host == ghost && ours == "not found":
		w.diverged(ghostNamed, before)
	case (theirs == "" || theirs == "taken") && ours == "limit":
		w.diverged(limitNamed, before)
	default:
		w.fail("Calico %v, ours %v", terr, oerr)
	}
}
