package ipset_test

import (
	"context"
	"fmt"
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// tenure is who had an address from a revision on; "" is nobody.
type tenure struct {
	from   uint64
	holder string
}

// auditLog answers who had an address after any commit. A program would keep the time beside the revision.
type auditLog map[netip.Addr][]tenure

// add adds the changes of a commit.
func (l auditLog) add(c alloc.Commit) {
	for _, ch := range c.Changes {
		switch ch.Kind {
		case alloc.AddressAssigned:
			l[ch.Address] = append(l[ch.Address], tenure{c.Rev, ch.Is.Handle})
		case alloc.AddressReleased, alloc.AddressCooling:
			l[ch.Address] = append(l[ch.Address], tenure{c.Rev, ""})
		}
	}
}

// holder returns who had an address after the commit of a revision.
func (l auditLog) holder(a netip.Addr, rev uint64) (who string) {
	for _, t := range l[a] {
		if t.from <= rev {
			who = t.holder
		}
	}
	return who
}

// An audit log answers who held an address at a time. It begins with the present state and goes on with every commit.
func ExampleEngine_Changes() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/30", 30)
	_, err := e.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
	must(err)

	log := auditLog{}
	next, stop := iter.Pull2(e.Changes(ctx, 0)) // in a program, a goroutine with: for c, err := range e.Changes(ctx, 0)
	defer stop()
	read := func() (rev uint64) {
		for more := true; more; {
			c, err, _ := next()
			must(err)
			for _, ch := range c.Changes {
				if ch.Address.IsValid() {
					fmt.Printf("%s %s: %q, then %q\n", ch.Address, ch.Kind, ch.Was.Handle, ch.Is.Handle)
				}
			}
			log.add(c)
			rev, more = c.Rev, c.More
		}
		return rev
	}
	first := read()
	released, err := e.ReleaseByHandle(ctx, "pod-1")
	must(err)
	second := read()
	_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: released[0], Owner: alloc.HostOwner("node-b"), Handle: "pod-2"})
	must(err)
	third := read()
	for _, rev := range []uint64{first, second, third} {
		fmt.Printf("%q\n", log.holder(released[0], rev))
	}
	// Output:
	// 10.0.0.0 assigned: "", then "pod-1"
	// 10.0.0.0 released: "pod-1", then ""
	// 10.0.0.0 assigned: "", then "pod-2"
	// "pod-1"
	// ""
	// "pod-2"
}
