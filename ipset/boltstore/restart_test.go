package boltstore_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// manyBlocks makes a store of n blocks, each with addresses, by hosts with 20 blocks each.
func manyBlocks(tb testing.TB, path string, n int) {
	tb.Helper()
	s, err := boltstore.Open(context.Background(), path, boltstore.Options{NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	e, err := ipset.New(s, ipset.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	if err := e.AddPool(context.Background(), alloc.Pool{Name: "pool", Prefix: netip.MustParsePrefix("10.0.0.0/8"), BlockBits: 26}); err != nil {
		tb.Fatal(err)
	}
	done := make(chan error)
	const workers = 16
	for w := range workers {
		go func() {
			var err error
			for i := w; i < n/20 && err == nil; i += workers {
				_, err = e.AutoAssign(context.Background(), alloc.AssignArgs{
					Owner: alloc.HostOwner(fmt.Sprint("host", i)), Num4: 19*64 + 1, Use: alloc.Workload, Handle: fmt.Sprint("pod", i),
				})
			}
			done <- err
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			tb.Fatal(err)
		}
	}
}

// firstAllocation opens a store and assigns an address to a host that has blocks, and returns how many calls of the store
// that took.
func firstAllocation(tb testing.TB, path string, opts boltstore.Options) (calls, lists int) {
	tb.Helper()
	s, err := boltstore.Open(context.Background(), path, opts)
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	f := faults.NewFaulty(s)
	e, err := ipset.New(f, ipset.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	f.Reset()
	got, err := e.AutoAssign(context.Background(), alloc.AssignArgs{Owner: alloc.HostOwner("host0"), Num4: 1, Use: alloc.Workload, Handle: "new"})
	if err != nil || len(got.V4) != 1 {
		tb.Fatalf("%v, %v", got, err)
	}
	n := f.Counts()
	return n.Calls(), n.Lists
}

// What the first allocation after a restart reads does not grow with the store: neither the calls of the store, nor, when
// the file needs no verification, the pages of the file, except its branch pages: less than one in 50.
func TestRestartReadsLittle(t *testing.T) {
	var calls, lists [2]int
	var pages, all [2]int64
	for i, n := range []int{100, 2000} {
		path := filepath.Join(t.TempDir(), "store.db")
		manyBlocks(t, path, n)
		calls[i], lists[i] = firstAllocation(t, path, boltstore.Options{NoSync: true, Verify: boltstore.VerifyRestart})
		pages[i], all[i] = boltstore.PagesRead(t, path)
	}
	if calls[0] != calls[1] || calls[1] > 4 || lists[1] > 1 {
		t.Errorf("%d and %d calls, %d lists", calls[0], calls[1], lists[1])
	}
	if pages[1] > 10+all[1]/50 {
		t.Errorf("%d and %d pages of %d", pages[0], pages[1], all)
	}
}

// BenchmarkRestart opens a store of 100,000 blocks and assigns one address.
//
//	go test -run '^$' -bench Restart ./...
func BenchmarkRestart(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	began := time.Now()
	manyBlocks(b, path, 100_000)
	b.Logf("made in %v", time.Since(began))
	for _, v := range []struct {
		name   string
		verify boltstore.Verify
	}{{"verified", boltstore.VerifyAlways}, {"unverified", boltstore.VerifyRestart}} {
		b.Run(v.name, func(b *testing.B) {
			for b.Loop() {
				firstAllocation(b, path, boltstore.Options{Verify: v.verify})
			}
		})
	}
}
