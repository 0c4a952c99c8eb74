package store_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A commit names the revision of everything that it relies on. If a record has another one, nothing is written and the error
// names the record.
func ExampleMemory_Commit() {
	ctx, s := context.Background(), store.NewMemory()
	rev, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "pool", Value: "10.0.0.0/16"}}) // must not exist
	fmt.Println(rev, err)
	_, err = s.Commit(ctx, []store.Op{
		{Kind: store.Guard, Key: "pool", Expect: rev + 1},
		{Kind: store.Put, Key: "address", Value: "10.0.0.1"},
	})
	key, conflict := store.ConflictKey(err)
	fmt.Println(errors.Is(err, ipalloc.ErrConflict), conflict, key)
	// Output:
	// 1 <nil>
	// true true pool
}

// A watch yields every commit after a revision, whole and in order.
func ExampleMemory_Watch() {
	ctx, s := context.Background(), store.NewMemory()
	for _, v := range []string{"1", "2"} {
		_, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a", Value: v, Expect: store.AnyRevision}})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for event, err := range s.Watch(ctx, 0, "a") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Rev, event.Changes[0].Value)
		if event.Rev == 2 {
			break
		}
	}
	// Output:
	// 1 1
	// 2 2
}

// From one store to another; the engines are stopped meanwhile.
func ExampleCopy() {
	ctx, from, to := context.Background(), store.NewMemory(), store.NewMemory()
	_, err := from.Commit(ctx, []store.Op{{Kind: store.Put, Key: store.RootKey, Value: "catalog"}, {Kind: store.Put, Key: "b", Value: "2"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Copy(ctx, to, from))
	fmt.Println(store.Copy(ctx, to, from)) // again: everything is there
	// Output:
	// {2 2} <nil>
	// {2 0} <nil>
}

// A snapshot of a store in memory keeps the revisions.
func ExampleRestoreMemory() {
	ctx, s := context.Background(), store.NewMemory()
	if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a", Value: "1"}}); err != nil {
		fmt.Println(err)
		return
	}
	data, err := s.MarshalBinary()
	if err != nil {
		fmt.Println(err)
		return
	}
	restored, err := store.RestoreMemory(data)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(restored.Get(ctx, nil, "a", "b"))
	// Output: [{a 1 1} {b  0}] <nil>
}

// A space is a store inside a store: two of them do not see each other's records.
func ExampleSpace() {
	ctx, db := context.Background(), store.NewMemory()
	for _, tenant := range []string{"red", "blue"} {
		s, err := store.Space(db, tenant)
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "Owner", Value: "of " + tenant}}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.Get(ctx, nil, "Owner"))
	}
	for name, err := range store.Spaces(ctx, db) {
		fmt.Println(name, err)
	}
	// Output:
	// [{Owner of red 1}] <nil>
	// [{Owner of blue 2}] <nil>
	// blue <nil>
	// red <nil>
}
