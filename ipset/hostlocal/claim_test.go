package hostlocal

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// keyed returns engines of some scopes of a network that has keys.
func keyed(w *world, sets []RangeSet, scopes ...string) (es []*Engine) {
	for _, scope := range scopes {
		w.open(Config{Scope: scope, Sets: sets, Keys: true})
		es = append(es, w.Engine)
	}
	return es
}

// addKey expects addresses.
func (w *world) addKey(e *Engine, key string, who Attachment, want ...string) {
	w.Helper()
	got, err := e.AddKey(ctx, key, who)
	var as []string
	for _, a := range got {
		as = append(as, a.Prefix.Addr().String())
	}
	if err != nil || fmt.Sprint(as) != fmt.Sprint(want) {
		w.Fatalf("AddKey(%s, %s) = %v, %v, want %v", key, who, as, err, want)
	}
}

// TestKeyFollowsItsUser: the addresses of a key go with the attachment that uses it, over nodes, and stay with the key when none
// does.
func TestKeyFollowsItsUser(t *testing.T) {
	w := newWorld(t)
	es := keyed(w, []RangeSet{subnets("10.0.0.0/29"), subnets("fd00::/64")}, "n1", "n2")
	a, b := es[0], es[1]
	w.addKey(a, "vm", eth0("c1"), "10.0.0.2", "fd00::2")
	if _, err := a.AddKey(ctx, "vm", eth0("c1")); !errors.Is(err, ipalloc.ErrExists) {
		t.Error(err)
	}
	if _, err := a.Add(ctx, eth0("c1")); !errors.Is(err, ipalloc.ErrExists) {
		t.Error(err)
	}
	if _, err := a.Add(ctx, eth0("plain")); err != nil {
		t.Fatal(err)
	}
	w.addKey(b, "vm", eth0("c2"), "10.0.0.2", "fd00::2") // both run for a while
	if err := a.Verify(ctx, eth0("c1")); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Error(err)
	}
	for range 2 {
		if freed, err := a.Del(ctx, eth0("c1")); err != nil || len(freed) > 0 {
			t.Fatal(freed, err)
		}
		if err := b.Verify(ctx, eth0("c2"), addrs("10.0.0.2", "fd00::2")...); err != nil {
			t.Fatal(err)
		}
	}
	if freed, err := b.Del(ctx, eth0("c2")); err != nil || len(freed) > 0 {
		t.Fatal(freed, err)
	}
	w.check()
	s, err := b.Export(ctx)
	if err != nil || len(s.Holdings) != 2 || s.Holdings[0].Attachment.Container != "key/vm" || s.Holdings[0].Sequence != 2 || s.Holdings[0].User != (Attachment{}) {
		t.Fatal(s, err)
	}
	if got, err := a.Add(ctx, eth0("next")); err != nil || got[0].Prefix.Addr().String() != "10.0.0.4" {
		t.Fatal(got, err)
	}
	w.addKey(a, "vm", eth0("c3"), "10.0.0.2", "fd00::2")
	for _, asked := range []string{"10.0.0.6", "fd00::9"} {
		if _, err := b.AddKey(ctx, "vm", eth0("c4"), addrs(asked)...); !errors.Is(err, ipalloc.ErrMismatch) {
			t.Errorf("%s: %v", asked, err)
		}
	}
	w.open(Config{Scope: "n1", Sets: []RangeSet{subnets("10.9.0.0/29")}, Keys: true})
	if _, err := w.AddKey(ctx, "vm", eth0("c4")); !errors.Is(err, ipalloc.ErrMismatch) {
		t.Error(err)
	}
	if freed, err := b.EndKey(ctx, "vm"); err != nil || len(freed) > 0 { // c3 uses it
		t.Fatal(freed, err)
	}
	if _, err := a.Del(ctx, eth0("c3")); err != nil {
		t.Fatal(err)
	}
	if freed, err := b.EndKey(ctx, "vm"); err != nil || len(freed) != 1 || len(freed[0].Addresses) != 2 {
		t.Fatal(freed, err)
	}
	w.check()
}

// TestKeysAgainstModel compares random calls for keys and attachments of two nodes with two maps.
func TestKeysAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 30, 300) {
		random := rand.New(rand.NewPCG(seed, 55))
		w := newWorld(t)
		es := keyed(w, []RangeSet{subnets("10.0.0.0/28")}, "n1", "n2")
		keys, users, plain := map[string]netip.Addr{}, map[string]string{}, map[string]netip.Addr{} // users: of each container, its key
		for range 60 {
			n := random.IntN(2)
			c, key := fmt.Sprint("n", n, "-", random.IntN(3)), fmt.Sprint("vm", random.IntN(3))
			holds := users[c] != "" || plain[c].IsValid()
			switch random.IntN(6) {
			case 0, 1:
				got, err := es[n].AddKey(ctx, key, eth0(c))
				if holds != errors.Is(err, ipalloc.ErrExists) || !holds && err != nil {
					t.Fatal(got, err)
				}
				if holds {
					break
				}
				if was := keys[key]; was.IsValid() && got[0].Prefix.Addr() != was {
					t.Fatalf("%s had %s and has %v", key, was, got)
				}
				maps.DeleteFunc(users, func(_, k string) bool { return k == key })
				keys[key], users[c] = got[0].Prefix.Addr(), key
			case 2:
				got, err := es[n].Add(ctx, eth0(c))
				if holds != errors.Is(err, ipalloc.ErrExists) || !holds && err != nil {
					t.Fatal(got, err)
				}
				if !holds {
					plain[c] = got[0].Prefix.Addr()
				}
			case 3, 4:
				freed, err := es[n].Del(ctx, eth0(c))
				if err != nil || (len(freed) == 1) != plain[c].IsValid() {
					t.Fatal(freed, err)
				}
				delete(users, c)
				delete(plain, c)
			case 5:
				if random.IntN(2) == 0 {
					freed, err := es[n].EndKey(ctx, key)
					used := slices.Contains(slices.Collect(maps.Values(users)), key)
					if err != nil || (len(freed) == 1) != (keys[key].IsValid() && !used) {
						t.Fatal(freed, err)
					}
					if !used {
						delete(keys, key)
					}
					break
				}
				if _, err := es[n].GC(ctx, GCArgs{Valid: []Attachment{eth0(c)}}); err != nil {
					t.Fatal(err)
				}
				gone := func(name string) bool { return name != c && name[:2] == fmt.Sprint("n", n) }
				maps.DeleteFunc(users, func(name, _ string) bool { return gone(name) })
				maps.DeleteFunc(plain, func(name string, _ netip.Addr) bool { return gone(name) })
			}
			if err := es[0].Check(ctx); err != nil {
				t.Fatal(err)
			}
			want := map[netip.Addr]string{}
			for k, a := range keys {
				want[a] = "key/" + k
			}
			for k, a := range plain {
				want[a] = k
			}
			s, err := es[1].Export(ctx)
			got := map[netip.Addr]string{}
			for _, h := range s.Holdings {
				got[h.Addresses[0]] = h.Attachment.Container
				if k, isKey := map[bool]string{true: users[h.User.Container]}[h.User != (Attachment{})]; isKey && "key/"+k != h.Attachment.Container {
					t.Fatalf("seed %d: %s uses %s, want %s", seed, h.User, h.Attachment.Container, k)
				}
			}
			if err != nil || !maps.Equal(got, want) {
				t.Fatalf("seed %d: %v, %v, want %v", seed, got, err, want)
			}
		}
	}
}

// TestGCHasATime: what was added after the list was made stays, whatever the list says; so does a key, and a key that is not
// named.
func TestGCHasATime(t *testing.T) {
	at := clock(t, time.Hour.Nanoseconds())
	w := newWorld(t)
	es := keyed(w, []RangeSet{subnets("10.0.0.0/28")}, "n1", "n2")
	a, b := es[0], es[1]
	made := time.Unix(0, *at)
	freed := func(e *Engine, args GCArgs, want ...string) {
		t.Helper()
		got, err := e.GC(ctx, args)
		var names []string
		for _, h := range got {
			names = append(names, h.Attachment.Container)
		}
		if err != nil || fmt.Sprint(names) != fmt.Sprint(want) {
			t.Fatalf("GC released %v, %v, want %v", names, err, want)
		}
		w.check()
	}
	for _, e := range es {
		for _, c := range []string{"old", "valid"} {
			if _, err := e.Add(ctx, eth0(e.scope+c)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.addKey(a, "vm", eth0("user"), "10.0.0.6")
	*at += time.Second.Nanoseconds()
	if _, err := a.Add(ctx, eth0("late")); err != nil {
		t.Fatal(err)
	}
	valid := []Attachment{eth0("n1valid"), eth0("n2valid")}
	freed(a, GCArgs{Valid: valid, Made: made.Add(-time.Nanosecond)})
	freed(a, GCArgs{Valid: valid, Made: made}, "n1old") // and the key comes out of use
	if s, err := a.Export(ctx); err != nil || s.Holdings[0].User != (Attachment{}) || s.Holdings[0].Attachment.Container != "key/vm" {
		t.Fatal(s, err)
	}
	freed(b, GCArgs{Valid: valid, Made: made, AllScopes: true}, "n2old")
	freed(b, GCArgs{Valid: valid, AllScopes: true}, "late")
	freed(b, GCArgs{Valid: valid, Keys: []string{"vm", "other"}})
	*at += time.Hour.Nanoseconds()
	freed(b, GCArgs{Valid: valid, Idle: time.Hour + 1})
	w.addKey(b, "other", eth0("user2"), "10.0.0.8")
	freed(b, GCArgs{Valid: append(valid, eth0("user2")), Keys: []string{"other"}, Made: made}) // it came out of use later
	freed(b, GCArgs{Valid: append(valid, eth0("user2")), Idle: time.Hour}, "key/vm")
	freed(b, GCArgs{Valid: valid, Keys: []string{"none"}}) // out of use by this
	freed(b, GCArgs{Valid: valid, Keys: []string{"none"}}, "key/other")
}

// TestFormsOfTheNextEdition: an edition that reads the next form and does not write it yet goes on with a state of that form, and
// the edition before it says both versions.
func TestFormsOfTheNextEdition(t *testing.T) {
	was := forms
	t.Cleanup(func() { forms = was })
	w := newWorld(t)
	w.open(Config{Scope: "n1", Sets: []RangeSet{subnets("10.0.0.0/29")}, Keys: true})
	for i, f := range []string{"11", "12", "22", "12"} {
		forms = f
		if _, err := w.Add(ctx, eth0(fmt.Sprint("a", i))); err != nil {
			t.Fatal(err)
		}
		w.addKey(w.Engine, "vm", eth0(fmt.Sprint("user", i)), "10.0.0.3")
		w.check()
	}
	forms = "11"
	if err := w.Check(ctx); !errors.Is(err, ipalloc.ErrVersion) {
		t.Error(err)
	}
	forms = "22" // for the check at the end
}
