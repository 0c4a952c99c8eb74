package txn

import "testing"

// A budget takes what its first step writes, whatever that is, and of later ones what is left beside the room for pages.
func TestBudget(t *testing.T) {
	type step struct {
		n, pages int
		ok       bool
	}
	for name, steps := range map[string][]step{
		"first too large":          {{12, 3, true}, {1, 0, false}},
		"second":                   {{1, 0, true}, {10, 0, false}, {9, 0, true}, {1, 0, false}},
		"pages need room":          {{4, 2, true}, {3, 2, false}, {2, 2, true}, {1, 0, false}},
		"pages alone do not count": {{0, 8, true}, {12, 0, true}},
	} {
		b, ops := Budget{left: 10}, 0
		for i, s := range steps {
			if s.ok {
				ops += s.n
			}
			if ok := b.Take(s.n, s.pages); ok != s.ok || b.Ops != ops {
				t.Errorf("%s, step %d: %v, %d records; want %v, %d", name, i, ok, b.Ops, s.ok, ops)
			}
		}
	}
}
