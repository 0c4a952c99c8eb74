package ipset_test

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A cache of the holders follows the commits. After ErrOutOfRange it would begin again with 0 and an empty cache: the state is
// then complete, but the holders in between are unknown.
func ExampleEngine_Changes() {
	ctx := context.Background()
	e := newEngine("10.0.0.0/30", 30)
	_, err := e.Assign(ctx, alloc.HostOwner("node-a"), "pod-1")
	must(err)

	holders := make(map[netip.Addr]string)
	next, stop := iter.Pull2(e.Changes(ctx, 0)) // in a program, a goroutine with: for c, err := range e.Changes(ctx, 0)
	defer stop()
	follow := func() {
		for more := true; more; {
			c, err, _ := next()
			must(err)
			for _, ch := range c.Changes {
				switch ch.Kind {
				case alloc.AddressAssigned:
					holders[ch.Address] = ch.Is.Handle
				case alloc.AddressReleased, alloc.AddressCooling:
					delete(holders, ch.Address)
				}
			}
			more = c.More
		}
		fmt.Println(holders)
	}
	follow()
	released, err := e.ReleaseByHandle(ctx, "pod-1")
	must(err)
	follow()
	_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: released[0], Owner: alloc.HostOwner("node-b"), Handle: "pod-2"})
	must(err)
	follow()
	// Output:
	// map[10.0.0.0:pod-1]
	// map[]
	// map[10.0.0.0:pod-2]
}

// A signal at a low mark comes with the commit that passes it. The pools are counted after each commit that changes addresses; a busy
// program skips the commits that arrive while it counts, and counts once a minute too, because leases expire without a commit.
func ExampleEngine_Changes_lowMark() {
	const low = 2
	ctx, stop := context.WithCancel(context.Background())
	e := newEngine("10.0.0.0/29", 29)
	under := make(map[string]bool)
	count := func() {
		use, err := e.Utilization(ctx)
		must(err)
		for _, u := range use {
			is := u.Available.Cmp(alloc.Count{Lo: low}) <= 0
			if is != under[u.Pool] {
				fmt.Println(u.Pool, "has", u.Available, "addresses left, low:", is)
			}
			under[u.Pool] = is
		}
	}
	counted := make(chan bool)
	go func() {
		defer close(counted)
		for c, err := range e.Changes(ctx, 0) {
			if err != nil {
				return // ctx has ended; after another error a program begins again
			}
			if !c.More {
				count()
				counted <- true
			}
		}
	}()
	<-counted
	for i := range 7 {
		_, err := e.Assign(ctx, alloc.HostOwner("node-a"), fmt.Sprint("pod-", i))
		must(err)
		<-counted
	}
	for i := range 2 {
		_, err := e.ReleaseByHandle(ctx, fmt.Sprint("pod-", i))
		must(err)
		<-counted
	}
	stop()
	<-counted
	// Output:
	// pods has 2 addresses left, low: true
	// pods has 3 addresses left, low: false
}

// logged makes one change of the addresses and writes a row of the log, in one commit. Rows are records of the caller's own.
func logged(ctx context.Context, db store.Store, now time.Time, change func(e *ipset.Engine) (row string, err error)) error {
	return store.Together(ctx, db, func(tx store.Store) error {
		e, err := ipset.New(tx, ipset.Options{})
		if err != nil {
			return err
		}
		row, err := change(e)
		if err != nil {
			return err
		}
		_, err = tx.Commit(ctx, []store.Op{{Kind: store.Put, Key: "Audit/" + now.UTC().Format("20060102T150405.000000000") + "/" + row}})
		return err
	})
}

// A complete log of all holders is a record of your own, written in the commit that assigns or releases. It survives a restart, and
// a reader may be as slow as it likes. A row cannot exist without its assignment, nor an assignment without its row.
func Example_auditLog() {
	ctx, db := context.Background(), store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	must(err)
	must(e.AddPool(ctx, alloc.Pool{Name: "nat", Prefix: netip.MustParsePrefix("100.64.0.0/30"), BlockBits: 30}))
	now := time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)
	for _, subscriber := range []string{"ann", "bob"} {
		must(logged(ctx, db, now, func(e *ipset.Engine) (string, error) {
			a, err := e.Assign(ctx, alloc.VirtualOwner("nat"), subscriber)
			return fmt.Sprint("assigned/", a.Address, "/", subscriber), err
		}))
		now = now.Add(time.Minute)
	}
	must(logged(ctx, db, now, func(e *ipset.Engine) (string, error) {
		released, err := e.ReleaseByHandle(ctx, "ann")
		return fmt.Sprint("released/", released[0], "/ann"), err
	}))

	rows, _, err := db.List(ctx, store.Range{From: "Audit/", To: "Audit0"}) // '0' follows '/'
	must(err)
	for _, row := range rows {
		fmt.Println(row.Key)
	}
	// Output:
	// Audit/20260101T080000.000000000/assigned/100.64.0.0/ann
	// Audit/20260101T080100.000000000/assigned/100.64.0.1/bob
	// Audit/20260101T080200.000000000/released/100.64.0.0/ann
}
