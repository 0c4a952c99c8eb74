package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
)

// What an import of prefixes refuses is held with its reason, so no call gets a part of it, and an import that takes it ends that.
func TestRefusedPrefixesAreReserved(t *testing.T) {
	dir := t.TempDir()
	store := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/ipam.db"}
	pool := netip.MustParsePrefix("10.96.0.0/16")
	on := func(f func(of *prefixes.Allocator)) {
		t.Helper()
		db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), filepath.Join(dir, "ipam.db"), boltstore.Options{NoSync: true}))
		defer db.Close()
		f(must[*prefixes.Allocator](t)(prefixes.New(db, prefixes.Options{})))
	}
	held := netip.MustParsePrefix("10.96.33.0/24")
	on(func(of *prefixes.Allocator) {
		if err := of.AddPool(t.Context(), prefixes.Pool{Prefix: pool, Sizes: prefixes.Sizes{Shortest: 20, Longest: 24}}); err != nil {
			t.Fatal(err)
		}
		must[prefixes.Holding](t)(of.Occupy(t.Context(), held, prefixes.Request{Owner: "here", Pool: pool}))
	})
	file := filepath.Join(dir, "prefixes.csv")
	text := "prefix,pool,owner\n10.96.32.0/20,10.96.0.0/16,around\n10.96.64.128/26,10.96.0.0/16,small\n10.96.128.0/18,10.96.0.0/16,large\n10.96.1.0/24,10.96.0.0/16,right\n10.96.33.0/24,10.96.0.0/16,other\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := call(t, store, "prefix", "import", file); status != exitConflict {
		t.Fatalf("status %d, %s", status, stderr)
	}
	refused := []netip.Prefix{netip.MustParsePrefix("10.96.32.0/20"), netip.MustParsePrefix("10.96.64.128/26"), netip.MustParsePrefix("10.96.128.0/18")}
	on(func(of *prefixes.Allocator) {
		n := 0
		for ; ; n++ { // until the pool is full
			h, err := of.Allocate(t.Context(), prefixes.Request{Owner: "caller", Pool: pool, Bits: 24})
			if err != nil {
				break
			}
			for _, p := range refused {
				if p.Overlaps(h.Prefix) {
					t.Errorf("%v was assigned, in the refused %v", h.Prefix, p)
				}
			}
		}
		if want := 256 - 16 - 1 - 64 - 1; n != want { // the /20, the /24 around the /26, the /18 and what was taken
			t.Errorf("%d of /24 were free, want %d", n, want)
		}
		must[[]prefixes.Holding](t)(of.ReleaseByOwner(t.Context(), "here"))
		must[[]prefixes.Holding](t)(of.ReleaseByOwner(t.Context(), "caller"))
	})
	if err := os.WriteFile(file, []byte("prefix,pool,owner\n10.96.32.0/20,10.96.0.0/16,around\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := call(t, store, "prefix", "import", file); status != exitOK {
		t.Fatalf("repeated: status %d, %s", status, stderr)
	}
	if status, out, _ := call(t, store, "prefix", "list", "--owner", "around", "-o", "name"); status != exitOK || out != "10.96.32.0/20\n" {
		t.Errorf("status %d, %s", status, out)
	}
}
