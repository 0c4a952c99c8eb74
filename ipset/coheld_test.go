package ipset

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// vip is the address that the holders of these tests share.
var vip = ip("10.0.0.5")

// hostsOf are the hosts of the handles: two have the same.
var hostsOf = map[string]string{"p": "a", "q": "b", "r": "a", "s": "c"}

// join gives the shared address to a handle: as the first one or as one more.
func join(e *Engine, handle string, s alloc.Share) error {
	_, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: vip, Owner: alloc.HostOwner(hostsOf[handle]), Handle: handle, Share: s})
	return err
}

// joinNamed is join by the call that gives automatic addresses as well.
func joinNamed(e *Engine, handle string, s alloc.Share) error {
	got, err := e.AssignIPs(bg, alloc.AssignArgs{Owner: alloc.HostOwner(hostsOf[handle]), Handle: handle, Share: s}, vip)
	if err == nil && (len(got.V4) != 1 || got.V4[0].Handle != handle) {
		return fmt.Errorf("%s was given %+v", handle, got)
	}
	return err
}

// joins are the two calls that name an address. They do the same.
var joins = []func(*Engine, string, alloc.Share) error{join, joinNamed}

// holders returns the handles that hold the shared address, in their order, by every query that shows them.
func (w *world) holders() []string {
	w.t.Helper()
	al, err := w.Lookup(bg, vip)
	if errors.Is(err, ipalloc.ErrNotHeld) || errors.Is(err, ipalloc.ErrCooling) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var handles []string
	byHost := make(map[string]int)
	for h := range al.Holders() {
		handles = append(handles, h.Handle)
		byHost[h.Host.Name]++
		als, err := w.IPsByHandle(bg, h.Handle)
		if err != nil || len(als) != 1 || als[0] != h {
			w.t.Fatalf("handle %s holds %+v, %v; want %+v", h.Handle, als, err, h)
		}
	}
	for host, n := range byHost {
		if als, err := w.IPsByHost(bg, alloc.HostOwner(host)); err != nil || len(als) != n {
			w.t.Fatalf("host %s has %+v, %v; want %d", host, als, err, n)
		}
	}
	for _, handle := range slices.Sorted(maps.Keys(hostsOf)) {
		if als, err := w.IPsByHandle(bg, handle); err != nil || len(als) > 0 && !slices.Contains(handles, handle) {
			w.t.Fatalf("handle %s holds %+v, %v; the address is held by %v", handle, als, err, handles)
		}
	}
	return handles
}

// shareTwin is what the world of one address should be.
type shareTwin struct {
	handles []string
	share   alloc.Share
}

// join says what stands in the way of one more holder.
func (m *shareTwin) join(handle string, s alloc.Share) error {
	switch {
	case slices.Contains(m.handles, handle):
		return nil
	case len(m.handles) == 0:
		m.share = s
	case s == alloc.Share{} || m.share == alloc.Share{}:
		return ipalloc.ErrOccupied
	case s.Key != m.share.Key:
		return ipalloc.ErrMismatch
	case len(m.handles) == m.share.Max:
		return ipalloc.ErrLimit
	}
	m.handles = append(m.handles, handle)
	return nil
}

func (m *shareTwin) leave(handle string) bool {
	n := len(m.handles)
	m.handles = slices.DeleteFunc(m.handles, func(h string) bool { return h == handle })
	return len(m.handles) < n
}

// TestHoldersExhaustively runs every sequence of four operations of three holders on one address, with each limit, on two engines
// in turn beside a twin: who joins, with which key, who leaves and how.
func TestHoldersExhaustively(t *testing.T) {
	const ops, depth = 9, 4
	total := 1
	for range depth {
		total *= ops
	}
	if testing.Short() {
		total /= ops
	}
	handles := []string{"p", "q", "r"}
	for _, most := range []int{0, 2, 3} {
		share := alloc.Share{Max: most}
		if most > 0 {
			share.Key = "k"
		}
		for n := range total {
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
			engines, m := []*Engine{w.Engine, w.engine(w.store)}, &shareTwin{}
			for i, k := 0, n; i < depth; i, k = i+1, k/ops {
				e, op := engines[i%2], k%ops
				h := handles[op%3]
				join := joins[i%2]
				switch {
				case op < 3:
					if err, want := join(e, h, share), m.join(h, share); !errors.Is(err, want) {
						t.Fatalf("sequence %d, most %d: %s joins: %v, want %v", n, most, h, err, want)
					}
				case op < 6:
					got, err := e.ReleaseByHandle(bg, h)
					if left := m.leave(h); err != nil || (len(got) == 1) != left {
						t.Fatalf("sequence %d, most %d: %s leaves: %v, %v", n, most, h, got, err)
					}
				case op == 6:
					other := alloc.Share{Max: 3, Key: "other"}
					if err, want := join(e, "s", other), m.join("s", other); !errors.Is(err, want) {
						t.Fatalf("sequence %d, most %d: another key: %v, want %v", n, most, err, want)
					}
				case op == 7:
					res, err := e.ReleaseIPs(bg, alloc.Release{Address: vip, Guard: alloc.Guard{Handle: "q"}}, alloc.Release{Address: vip, Guard: alloc.Guard{Handle: "q"}})
					want, held := []alloc.Outcome{alloc.WasFree, alloc.WasFree}, len(m.handles) > 0
					left := m.leave("q")
					if held && !left {
						want[0] = alloc.OwnerChanged
					} else if left {
						want[0] = alloc.Released
					}
					if len(m.handles) > 0 {
						want[1] = alloc.OwnerChanged
					}
					if err != nil || res[0].Outcome != want[0] || res[1].Outcome != want[1] {
						t.Fatalf("sequence %d, most %d: release of q: %v, %v, want %v", n, most, res, err, want)
					}
				default:
					res, err := e.ReleaseIPs(bg, alloc.Release{Address: vip})
					if err != nil || (res[0].Outcome == alloc.Released) != (len(m.handles) > 0) {
						t.Fatalf("sequence %d, most %d: release: %v, %v", n, most, res, err)
					}
					m.handles = nil
				}
			}
			if got := w.holders(); !slices.Equal(got, m.handles) {
				t.Fatalf("sequence %d, most %d: held by %v, want %v", n, most, got, m.handles)
			}
		}
	}
}

// A refusal names what stands in the way, and changes nothing.
func TestJoinRefusals(t *testing.T) {
	for _, join := range joins {
		joinRefusals(t, join)
	}
}

func joinRefusals(t *testing.T, join func(*Engine, string, alloc.Share) error) {
	t.Helper()
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
	share := alloc.Share{Max: 2, Key: "web"}
	refuse := func(name string, err, want error, text string) {
		t.Helper()
		if !errors.Is(err, want) || text != "" && !strings.HasSuffix(err.Error(), text) {
			t.Errorf("%s: %v, want %v: %s", name, err, want, text)
		}
	}
	_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: vip, Owner: alloc.HostOwner("a"), Share: share})
	refuse("no handle", err, ipalloc.ErrInvalid, `assign IP 10.0.0.5 for "host:a": Share: a holder of a shared address needs a handle`)
	refuse("one holder", join(w.Engine, "p", alloc.Share{Max: 1}), ipalloc.ErrInvalid, "")
	refuse("too many", join(w.Engine, "p", alloc.Share{Max: 257}), ipalloc.ErrInvalid, "")
	refuse("key alone", join(w.Engine, "p", alloc.Share{Key: "web"}), ipalloc.ErrInvalid, "")
	refuse("NUL", join(w.Engine, "p", alloc.Share{Max: 2, Key: "\x00"}), ipalloc.ErrInvalid, "")
	w.holders()
	join(w.Engine, "p", alloc.Share{})
	refuse("not shared", join(w.Engine, "q", share), ipalloc.ErrOccupied, ` 10.0.0.5 handle "q" for "host:b": occupied, held by "p"`)
	w.releaseHandle("p")
	join(w.Engine, "p", share)
	refuse("key", join(w.Engine, "q", alloc.Share{Max: 2, Key: "dns"}), ipalloc.ErrMismatch, ` 10.0.0.5 handle "q" for "host:b": mismatch: the address is shared under the key "web", held by "p"`)
	refuse("no share", join(w.Engine, "q", alloc.Share{}), ipalloc.ErrOccupied, "")
	refuse("second", join(w.Engine, "q", share), nil, "")
	refuse("again", join(w.Engine, "q", share), nil, "")
	refuse("third", join(w.Engine, "r", share), ipalloc.ErrLimit, ` 10.0.0.5 handle "r" for "host:a": limit exceeded: the address has 2 holders, held by "p"`)
	if got := w.holders(); !slices.Equal(got, []string{"p", "q"}) {
		t.Errorf("held by %v", got)
	}
	w.check()
}

// A holder joins a shared address of each family, and gets an automatic address, in one commit.
func TestJoinBesideAutomatic(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("a", "10.0.0.0/28", 29), poolOf("b", "fd00::/120", 124))
	six, share := ip("fd00::9"), alloc.Share{Max: 2, Key: "web"}
	for i, handle := range []string{"p", "q"} {
		rev := w.revision()
		got, err := w.AssignIPs(bg, alloc.AssignArgs{
			Owner: alloc.HostOwner(hostsOf[handle]), Num4: 1, Handle: handle, Share: share, Request: handle,
		}, vip, six)
		if err != nil || len(got.V4) != 2 || got.V4[0].Address != vip || len(got.V6) != 1 || got.V6[0].Address != six || w.revision() != rev+1 {
			t.Fatalf("%s: %+v, %v in %d commits", handle, got, err, w.revision()-rev)
		}
		for _, at := range []netip.Addr{vip, six} {
			al, err := w.Lookup(bg, at)
			if err != nil || len(slices.Collect(al.Holders())) != i+1 {
				t.Errorf("%s: %s is held by %+v, %v", handle, at, slices.Collect(al.Holders()), err)
			}
		}
		if al, err := w.Lookup(bg, got.V4[1].Address); err != nil || len(slices.Collect(al.Holders())) != 1 {
			t.Errorf("%s: automatic: %+v, %v", handle, al, err)
		}
	}
}

// One holder more or less is one commit, which writes the address and what lists this holder.
func TestHolderCostsOneCommit(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
	f := faults.NewFaulty(w.store)
	e := w.engine(f)
	share := alloc.Share{Max: 3, Key: "web"}
	for _, h := range []string{"p", "q", "r"} {
		f.Reset()
		if err := join(e, h, share); err != nil {
			t.Fatal(err)
		}
		if c := f.Counts(); c.Commits != 1 {
			t.Errorf("%s joined in %d commits", h, c.Commits)
		}
	}
	for _, h := range []string{"p", "q", "r"} {
		f.Reset()
		if res, err := e.ReleaseIPs(bg, alloc.Release{Address: vip, Guard: alloc.Guard{Handle: h}}); err != nil || res[0].Outcome != alloc.Released {
			t.Fatal(res, err)
		}
		if c := f.Counts(); c.Commits != 1 {
			t.Errorf("%s left in %d commits", h, c.Commits)
		}
	}
}

// Whatever call of the store fails, before or after it has happened: the same call again ends in what it should, nothing is lost
// and nothing is there twice.
func TestHoldersWithFaults(t *testing.T) {
	share := alloc.Share{Max: 3, Key: "web"}
	release := func(h string) func(e *Engine) error {
		return func(e *Engine) error {
			_, err := e.ReleaseIPs(bg, alloc.Release{Address: vip, Guard: alloc.Guard{Handle: h}})
			return err
		}
	}
	for name, tt := range map[string]struct {
		before []string
		do     func(e *Engine) error
		after  []string
	}{
		"first":       {nil, func(e *Engine) error { return join(e, "p", share) }, []string{"p"}},
		"second":      {[]string{"p"}, func(e *Engine) error { return join(e, "q", share) }, []string{"p", "q"}},
		"third":       {[]string{"p", "q"}, func(e *Engine) error { return join(e, "r", share) }, []string{"p", "q", "r"}},
		"first goes":  {[]string{"p", "q", "r"}, release("p"), []string{"q", "r"}},
		"second goes": {[]string{"p", "q"}, release("q"), []string{"p"}},
		"last goes":   {[]string{"p"}, release("p"), nil},
		"by handle":   {[]string{"p", "q"}, func(e *Engine) error { _, err := e.ReleaseByHandle(bg, "p"); return err }, []string{"q"}},
		"by host":     {[]string{"p", "q", "r"}, func(e *Engine) error { _, err := e.ReleaseByHost(bg, alloc.HostOwner("a")); return err }, []string{"q"}},
	} {
		for _, o := range []faults.Outcome{faults.Fail(errors.New("no answer")), faults.Unknown(false), faults.Unknown(true)} {
			for n, refused := 1, true; refused; n++ {
				w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
				for _, h := range tt.before {
					if err := join(w.Engine, h, share); err != nil {
						t.Fatal(err)
					}
				}
				f := faults.NewFaulty(w.store)
				e := w.engine(f)
				f.Script(faults.At(n, o))
				refused = tt.do(e) != nil
				f.Script(nil)
				if got := w.holders(); !slices.Equal(got, tt.before) && !slices.Equal(got, tt.after) {
					t.Fatalf("%s, call %d: held by %v", name, n, got)
				}
				if err := tt.do(e); err != nil {
					t.Fatalf("%s again, call %d: %v", name, n, err)
				}
				if got := w.holders(); !slices.Equal(got, tt.after) {
					t.Fatalf("%s, call %d: held by %v, want %v", name, n, got, tt.after)
				}
			}
		}
	}
}

// The addresses of one holder of many are netip values like all others: a shared one is one address.
func TestSharedAddressCountsOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
	for _, h := range []string{"p", "q", "r"} {
		if err := join(w.Engine, h, alloc.Share{Max: 3}); err != nil {
			t.Fatal(err)
		}
	}
	use, err := w.Utilization(bg)
	if err != nil || use[0].Used.Lo != 1 {
		t.Errorf("%+v, %v", use, err)
	}
	n := 0
	for _, err := range w.Allocations(bg, netip.Prefix{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if rep, _ := w.Operator().Check(bg, nil); n != 1 || rep.Allocations != 1 {
		t.Errorf("%d allocations, Check counts %d", n, rep.Allocations)
	}
}
