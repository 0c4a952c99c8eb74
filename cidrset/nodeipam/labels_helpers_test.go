package nodeipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/selector"
)

type (
	entry = nodeipam.Entry
	node  = nodeipam.Node
)

var (
	v4   = []nodeipam.Family{nodeipam.IPv4}
	dual = []nodeipam.Family{nodeipam.IPv4, nodeipam.IPv6}
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, pfx(s))
	}
	return ps
}

// sel reads a selector, a term for each text: "a=1|2,b,!c,d!=x,e>5,@=n1,@!=n2".
func sel(texts ...string) (s []selector.Term) {
	for _, text := range texts {
		var t selector.Term
		for _, part := range strings.Split(text, ",") {
			r := selector.Requirement{Key: part, Op: selector.Exists}
			for _, op := range []struct {
				sign string
				op   selector.Operator
			}{{"!=", selector.NotIn}, {"=", selector.In}, {">", selector.Gt}, {"<", selector.Lt}} {
				if key, value, ok := strings.Cut(part, op.sign); ok {
					r = selector.Requirement{Key: key, Op: op.op, Values: strings.Split(value, "|")}
					break
				}
			}
			if key, ok := strings.CutPrefix(part, "!"); ok {
				r = selector.Requirement{Key: key, Op: selector.DoesNotExist}
			}
			if r.Key == "@" {
				r.Key = "metadata.name"
				t.Fields = append(t.Fields, r)
			} else {
				t.Labels = append(t.Labels, r)
			}
		}
		s = append(s, t)
	}
	return s
}

// e4 and e6 and e46 make entries of one or both families.
func e4(name, pool string, hostBits int, terms ...string) entry {
	return entry{Name: name, IPv4: pfx(pool), HostBits: hostBits, Selector: sel(terms...)}
}

func e6(name, pool string, hostBits int, terms ...string) entry {
	return entry{Name: name, IPv6: pfx(pool), HostBits: hostBits, Selector: sel(terms...)}
}

func e46(name, pool4, pool6 string, hostBits int, terms ...string) entry {
	return entry{Name: name, IPv4: pfx(pool4), IPv6: pfx(pool6), HostBits: hostBits, Selector: sel(terms...)}
}

// labels reads "a=1,b=2".
func labels(text string) map[string]string {
	m := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			m[key] = value
		}
	}
	return m
}

// allocator returns one with the given entries, which checks itself at the end.
func allocator(t testing.TB, families []nodeipam.Family, entries ...entry) *nodeipam.Allocator {
	t.Helper()
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true, Families: families})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := a.AddEntry(e); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { check(t, a) })
	return a
}

// poolStats returns the counts of the pools of an entry, IPv4 first.
func poolStats(a *nodeipam.Allocator, entry string) (out []nodeipam.PoolStats) {
	for _, p := range a.Stats().Pools {
		if p.Entry == entry {
			out = append(out, p)
		}
	}
	return out
}

func check(t testing.TB, a *nodeipam.Allocator) {
	t.Helper()
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}

// gets allocates and compares with "entry [prefixes]".
func gets(t testing.TB, a *nodeipam.Allocator, n node, want string) {
	t.Helper()
	as, err := a.Allocate(n)
	if err != nil {
		t.Errorf("%s gets nothing: %v, want %s", n.Name, err, want)
		return
	}
	if got := fmt.Sprint(as.Entry, " ", as.Prefixes); got != want {
		t.Errorf("%s gets %s, want %s", n.Name, got, want)
	}
	check(t, a)
}

// fails checks that an operation fails so and changes nothing.
func fails(t testing.TB, a *nodeipam.Allocator, want error, op func() error) *ipalloc.Error {
	t.Helper()
	before := bytesOf(t, a)
	err := op()
	e := asError(t, err, want)
	if bytesOf(t, a) != before {
		t.Errorf("%v: and yet something changed", err)
	}
	return e
}

func bytesOf(t testing.TB, a *nodeipam.Allocator) string {
	t.Helper()
	data, err := a.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ranking returns the names of the entries that may serve n, best first, with the
// rule that put each behind the one before.
func ranking(a *nodeipam.Allocator, n node) (names []string, rules []string) {
	for _, c := range a.Explain(n).Candidates {
		if c.Rank > 0 {
			names = append(names, c.Entry)
			if c.Rank > 1 {
				rules = append(rules, c.Rule)
			}
		}
	}
	return names, rules
}

// permute calls f with every order of s.
func permute[T any](s []T, f func([]T)) {
	var rest func(k int)
	s = slices.Clone(s)
	rest = func(k int) {
		if k == len(s) {
			f(s)
			return
		}
		for i := k; i < len(s); i++ {
			s[k], s[i] = s[i], s[k]
			rest(k + 1)
			s[k], s[i] = s[i], s[k]
		}
	}
	rest(0)
}

func asError(t testing.TB, err, want error) *ipalloc.Error {
	t.Helper()
	var e *ipalloc.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Errorf("error %v, want %v", err, want)
		return &ipalloc.Error{Err: want}
	}
	return e
}

func is(err, want error) bool { return errors.Is(err, want) }
