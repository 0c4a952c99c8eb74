package nodeipam_test

import (
	"testing"
)

// Every entry with its rank or the rule that put it behind, for a person.
func TestExplainText(t *testing.T) {
	a := allocator(t, v4,
		e4("gpu", "10.0.0.0/24", 8, "gpu,zone=a"),
		e4("old", "10.6.0.0/16", 8, "zone=a,gpu,disk"),
		e4("zone-a", "10.2.0.0/22", 8, "zone=a"),
		e4("zone-small", "10.3.0.0/24", 6, "zone=a"),
		e4("disk", "10.4.0.0/22", 8, "disk"),
		e4("low", "9.0.0.0/22", 8, "zone=a"),
		e4("lower-name", "9.0.0.0/22", 8, "zone=a"),
		e4("zone-b", "10.5.0.0/16", 8, "zone=b", "!gpu"),
		e4("large", "10.0.0.0/8", 8),
		e4("larger", "12.0.0.0/7", 8))
	n := node{Name: "n1", Labels: labels("gpu=1,zone=a,disk=ssd")}
	gets(t, a, node{Name: "n0", Labels: n.Labels}, "old [10.6.0.0/24]")
	if gone, err := a.DeleteEntry("old"); gone || err != nil {
		t.Fatal(gone, err)
	}
	gets(t, a, node{Name: "n2", Labels: n.Labels}, "gpu [10.0.0.0/24]")
	want := `n1 {disk=ssd, gpu=1, zone=a} gets zone-small
  1  gpu         full         no free /24 in 10.0.0.0/24; the best match
  2  zone-small  chosen       labels met: 1 (zone=a), gpu has 2 (gpu=1,zone=a)
  3  disk        behind       addresses per node: 256, zone-small has 64
  4  low         behind       names of the labels met: "zone=a", disk has "disk=ssd"
  5  lower-name  behind       name: lower-name, low has low
  6  zone-a      behind       base address: 10.2.0.0/22 in /24, lower-name has 9.0.0.0/22 in /24
  7  large       behind       has no selector; zone-a has one
  8  larger      behind       capacity: 131072 children, large has 65536 children
  -  old         terminating  deleted; nodes still to go: 1
  -  zone-b      no match     zone in (b), but zone=a; or !gpu, but gpu=1
`
	same(t, a.Explain(n).String(), want)
	same(t, a.Explain(node{Name: "n2", Labels: labels("zone=b")}).String(), `n2 {zone=b} holds [10.0.0.0/24] of gpu
  1  zone-b      chosen       the best match
  2  large       behind       has no selector; zone-b has one
  3  larger      behind       capacity: 131072 children, large has 65536 children
  -  disk        no match     disk, but there is no disk
  -  gpu         no match     gpu, but there is no gpu
  -  low         no match     zone in (a), but zone=b
  -  lower-name  no match     zone in (a), but zone=b
  -  old         terminating  deleted; nodes still to go: 1
  -  zone-a      no match     zone in (a), but zone=b
  -  zone-small  no match     zone in (a), but zone=b
`)
	b := allocator(t, nil)
	b.Load([]node{{Name: "n1", Prefixes: prefixes("10.0.0.0/24")}})
	same(t, b.Explain(node{Name: "n1"}).String(), "n1 holds [10.0.0.0/24], of no entry\n  there are no entries\n")
	same(t, b.Explain(node{Name: "n2"}).String(), "n2 cannot be served\n  there are no entries\n")
	if x := b.Explain(node{Name: "n2"}); x.Chosen != "" || x.Held != nil || len(x.Candidates) != 0 {
		t.Errorf("%+v", x)
	}
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
