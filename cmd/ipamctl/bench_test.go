package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// large returns a store in a file with a /8 pool of so many /26 blocks, spread over the pool, each with as many addresses
// held. The file is kept in the user's temporary directory under a name that says what it is.
func large(b *testing.B, blocks, held int) string {
	b.Helper()
	path := fmt.Sprintf("%s/ipamctl-bench-%d-%d.db", os.TempDir(), blocks, held)
	if _, err := os.Stat(path); err == nil {
		return "bolt://" + path
	}
	ctx := context.Background()
	db, err := boltstore.Open(ctx, path+".new", boltstore.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	e, err := ipset.New(db, ipset.Options{Now: func() time.Time { return noon }})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.0.0.0/8"), BlockBits: 26}); err != nil {
		b.Fatal(err)
	}
	base := addr.FromAddr(netip.MustParseAddr("10.0.0.0"))
	for i := range uint64(blocks) {
		at := base.Add(addr.U128{Lo: i * 2654435761 % (1 << 18) * 64}).Addr4()
		o := block.Options{Owner: alloc.HostOwner(fmt.Sprintf("node-%d", i%5000)), Claimed: noon, Seq: 1 << 50}
		blk, err := block.New(netip.PrefixFrom(at, 26), o)
		if err != nil {
			b.Fatal(err)
		}
		blk.AutoAssign(nil, held, alloc.Claim{Handle: fmt.Sprintf("pod-%d", i)}, noon, nil)
		if err := e.Operator().ImportBlock(ctx, blk); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		b.Fatal(err)
	}
	return "bolt://" + path
}

// benchmark runs a command, from start to end.
func benchmark(b *testing.B, store string, args ...string) {
	for b.Loop() {
		var out, errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(string) string { return "" }, now: func() time.Time { return noon }}
		if status := a.run(context.Background(), append(args, "--store", store)); status != exitOK {
			b.Fatal(errs.String())
		}
	}
}

func BenchmarkPoolList(b *testing.B) { benchmark(b, large(b, 100_000, 4), "pool", "list") }
func BenchmarkAddressShow(b *testing.B) {
	benchmark(b, large(b, 100_000, 4), "show", "10.0.0.1")
}
func BenchmarkMap(b *testing.B)    { benchmark(b, large(b, 60_000, 16), "map") }
func BenchmarkMapSVG(b *testing.B) { benchmark(b, large(b, 60_000, 16), "map", "--svg", "-") }
