package nodeipam

import "testing"

// A terminating entry that loses its last node and gets another by the same Load stays,
// whatever the order of the list, and also if the node is another one of its name.
func TestLoadInAnyOrder(t *testing.T) {
	for _, uid := range []string{"", "2"} {
		moved := Node{Name: "n1", UID: uid, Entry: "e2", Prefixes: pfxs("10.0.1.0/28")}
		comes := Node{Name: "n2", Entry: "e1", Prefixes: pfxs("10.0.0.16/28")}
		states := map[string]bool{}
		for _, list := range [][]Node{{moved, comes}, {comes, moved}} {
			f := mustNew(t, Config{ByLabels: true})
			a := mustNew(t, Config{ByLabels: true}, OnChange(func(c Change) {
				if err := f.Apply(c); err != nil {
					t.Error(err)
				}
			}))
			for name, p := range map[string]string{"e1": "10.0.0.0/24", "e2": "10.0.1.0/24"} {
				if err := a.AddEntry(Entry{Name: name, IPv4: pfx(p), HostBits: 4}); err != nil {
					t.Fatal(err)
				}
			}
			a.Observe(Node{Name: "n1", UID: "1", Entry: "e1", Prefixes: pfxs("10.0.0.0/28")})
			if _, err := a.DeleteEntry("e1"); err != nil {
				t.Fatal(err)
			}
			if problems := a.Load(list); len(problems) > 0 {
				t.Error(problems)
			}
			if states[snapshot(t, a)] = true; snapshot(t, f) != snapshot(t, a) {
				t.Error("the follower has another state")
			}
			a.Release("n2")
			if snapshot(t, f) != snapshot(t, a) || a.Stats().Entries != 1 {
				t.Error("the entry stays without a node")
			}
		}
		if len(states) != 1 {
			t.Error("the state depends on the order of the list")
		}
	}
}
