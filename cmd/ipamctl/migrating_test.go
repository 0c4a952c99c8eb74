package main

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// migration is the traffic beside the steps of MIGRATING.md: callers of a program on the store that the page fills.
type migration struct {
	dir    string
	live   map[netip.Addr]bool // in the systems that the page imports
	blocks []netip.Prefix      // of nodes, which are live there as a whole
	had    int                 // addresses that strangers got
}

var (
	storeOfPage  = regexp.MustCompile(`IPAMCTL_STORE=bolt://(\S+)`)
	importOfPage = regexp.MustCompile(`^ipamctl import (\S+) --format (\S+)`)
)

// traffic notes what an import of the page brings, and after each command of the page has strangers ask a copy of the store for all that
// they can get: automatically, from each pool by name, and for each live address by name. None gets one that is live there.
func (m *migration) traffic(t *testing.T, exports, command string) {
	t.Helper()
	ctx := t.Context()
	if f := importOfPage.FindStringSubmatch(command); f != nil {
		m.note(t, f[2], filepath.Join(m.dir, f[1]))
	}
	all := storeOfPage.FindAllStringSubmatch(exports, -1)
	if len(all) == 0 || len(m.live)+len(m.blocks) == 0 {
		return
	}
	from, to := strings.Replace(all[len(all)-1][1], "$PWD", m.dir, 1), filepath.Join(t.TempDir(), "copy.db")
	if !exists(from) { // the first import is a dry run
		return
	}
	if err := boltstore.Snapshot(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	db := must[*boltstore.Store](t)(boltstore.Open(ctx, to, boltstore.Options{NoSync: true}))
	defer db.Close()
	e := newEngine(t, db)
	m.strangers(t, e, command)
}

// strangers assigns all that can be had.
func (m *migration) strangers(t *testing.T, e *ipset.Engine, command string) {
	t.Helper()
	ctx := t.Context()
	a := alloc.AssignArgs{Owner: alloc.HostOwner("stranger"), Num4: 300, Num6: 300, Partial: true, Handle: "stranger"}
	var got []alloc.Allocation
	take := func(as alloc.Assigned, err error) {
		if err == nil {
			got = append(got, append(as.V4, as.V6...)...)
		}
	}
	pools := must[[]alloc.Pool](t)(e.Pools(ctx))
	for _, p := range pools {
		a.Pools = []string{p.Name}
		if a.Num4, a.Num6 = 300, 0; p.Prefix.Addr().Is6() {
			a.Num4, a.Num6 = 0, 300
		}
		before := len(got)
		take(e.AutoAssign(ctx, a))
		if p.Closed && len(got) > before {
			t.Errorf("after %q: pool %s is closed and gave %v", command, p.Name, got[before].Address)
		}
	}
	a.Pools = nil
	take(e.AutoAssign(ctx, a))
	for at := range m.live {
		al, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: at, Owner: a.Owner, Handle: "stranger-2"})
		if err == nil {
			got = append(got, al)
		}
	}
	for _, al := range got {
		bad := m.live[al.Address]
		for _, p := range m.blocks {
			bad = bad || p.Contains(al.Address)
		}
		if bad {
			t.Errorf("after %q: a stranger got %v, which is live in the system that was imported", command, al.Address)
		}
	}
	m.had += len(got)
}

// note remembers what a file says is live.
func (m *migration) note(t *testing.T, format, name string) {
	t.Helper()
	inv, err := (&app{now: clock}).other(t.Context(), format, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range inv.Addresses {
		m.live[netip.MustParseAddr(strings.Split(e.Address, "/")[0])] = true
	}
	if format == "nodes" {
		for _, b := range inv.Blocks {
			m.blocks = append(m.blocks, netip.MustParsePrefix(b.Block))
		}
	}
}
