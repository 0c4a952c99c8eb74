package podnet

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every lie is seen: of the engine, and of what pods are told.
func TestVerifySees(t *testing.T) {
	const pod, other = "shop/web-03", "data/db-01"
	var (
		node string     // of the pod
		a    netip.Addr // likewise
	)
	for name, c := range map[string]struct {
		lie  func(n *Network) error
		want string
	}{
		"released behind its back": {
			func(n *Network) error {
				_, err := n.engine.ReleaseByHandle(t.Context(), pod)
				return err
			},
			"the pods hold",
		},
		"leaked": {
			func(n *Network) error {
				_, err := n.engine.AutoAssign(t.Context(), ipset.AssignArgs{Owner: alloc.HostOwner(node), Num4: 1, Claim: alloc.Claim{Handle: "stray"}, Use: alloc.Workload})
				return err
			},
			`for pod "stray"`,
		},
		"unused": {
			func(n *Network) error {
				_, err := n.engine.AutoAssign(t.Context(), ipset.AssignArgs{Owner: alloc.HostOwner(node), Num4: 1, Claim: alloc.Claim{Handle: "stray"}, Use: alloc.Workload})
				return err
			},
			"Check: unused",
		},
		"another's attributes": {
			func(n *Network) error {
				none := alloc.Attributes{}
				return n.engine.SetAttributes(t.Context(), ipset.SetOwnerArgs{Address: a, Active: &none})
			},
			"with map[], pod",
		},
		"taken from its node": {
			func(n *Network) error {
				_, err := n.engine.DisownBlocks(t.Context(), ipset.DisownArgs{Owner: alloc.HostOwner(node)})
				return err
			},
			`belongs to node "", it was node "`,
		},
		"lost pool": {
			func(n *Network) error { return n.engine.RemovePool(t.Context(), "IPv4") },
			"Check: no pool 10.244.0.0/29",
		},
		"another size": {
			func(n *Network) error { n.cfg.Ranges[0].Pool = netip.MustParsePrefix("10.244.0.0/23"); return nil },
			"IPv4: the engine says that the pool has 256 addresses, it has 2^9",
		},
		"another count": {
			func(n *Network) error { n.holder[netip.MustParseAddr("10.244.0.250")] = pod; return nil },
			"IPv4: the engine counts 40 used and 216 available, its blocks hold 40, the pods 41",
		},
		"told nothing":  {func(n *Network) error { delete(n.held, pod); return nil }, `pod "` + pod + `" has no address`},
		"told too much": {func(n *Network) error { n.held[pod] = append(n.held[pod], a); return nil }, "one address of each family is right"},
		"told the same": {func(n *Network) error { n.held[other] = n.held[pod]; return nil }, `is held by pods "` + other + `" and "` + pod + `"`},
		"told outside": {
			func(n *Network) error { n.held[pod][0] = netip.MustParseAddr("192.0.2.1"); return nil },
			`pod "` + pod + `" has 192.0.2.1, which is outside 10.244.0.0/24`,
		},
		"a ghost": {func(n *Network) error { n.held["ghost"] = n.held[pod]; return nil }, `pod "ghost" has`},
	} {
		t.Run(name, func(t *testing.T) {
			n := open(t, store.NewMemory(), builtin(t))
			if err := n.Run(t.Context(), 40); err != nil {
				t.Fatal(err)
			}
			if err := n.Verify(t.Context(), "before"); err != nil {
				t.Fatal(err)
			}
			a, node = n.held[pod][0], n.there()[pod]
			if err := c.lie(n); err != nil {
				t.Fatal(err)
			}
			err := n.Verify(t.Context(), "after")
			var broken *wording.BrokenError
			if !errors.As(err, &broken) || !strings.HasPrefix(err.Error(), "broken promise, pods after:\n\t") {
				t.Fatal(err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}
