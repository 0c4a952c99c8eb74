// Command delegation hands IPv6 prefixes of several sizes to customers, as a delegating router
// does (RFC 8415): a /56 for most, a /48 for some, all out of one /40 without stranding space. The rows
// of the customers are the truth; the allocator is made from them at start.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

type router struct {
	set  *cidrset.Set
	rows *boltstore.Table // customer -> prefix
}

// open occupies what the rows say, and refuses rows that contradict each other.
func open(ctx context.Context, db *boltstore.Store) (*router, error) {
	rows, err := db.OpenTable("customers")
	if err != nil {
		return nil, err
	}
	set, err := cidrset.New(netip.MustParsePrefix("2001:db8::/40"), 56)
	if err != nil {
		return nil, err
	}
	recs, _, err := rows.List(ctx, store.Range{})
	if err != nil {
		return nil, err
	}
	for _, r := range recs {
		p, err := netip.ParsePrefix(r.Value)
		if err != nil {
			return nil, err
		}
		if err := set.Claim(p); err != nil { // the error names what is in the way
			return nil, fmt.Errorf("customer %s: %w", r.Key, err)
		}
	}
	return &router{set, rows}, nil
}

// delegate gives a customer a prefix, once: a customer that has one gets it again.
func (r *router) delegate(ctx context.Context, customer string, bits int) (netip.Prefix, error) {
	recs, _, err := r.rows.List(ctx, store.Range{From: customer, To: customer + "\x00"})
	if err != nil {
		return netip.Prefix{}, err
	}
	if len(recs) == 1 {
		return netip.ParsePrefix(recs[0].Value)
	}
	p, err := r.set.AllocatePrefix(bits)
	if err != nil {
		return netip.Prefix{}, err
	}
	// Expect 0: the row must not exist. Two calls for one customer at once: one of them is refused.
	_, err = r.rows.Commit(ctx, []store.Op{{Kind: store.Put, Key: customer, Value: p.String()}})
	if err != nil && !errors.Is(err, ipalloc.ErrUnknownOutcome) { // unknown: keep it until the next start reads the rows
		_, released := r.set.Release(p)
		return netip.Prefix{}, errors.Join(err, released)
	}
	return p, err
}

// end takes a customer's prefix back: first the row, then the prefix.
func (r *router) end(ctx context.Context, customer string) error {
	recs, _, err := r.rows.List(ctx, store.Range{From: customer, To: customer + "\x00"})
	if err != nil || len(recs) == 0 {
		return err
	}
	if _, err := r.rows.Commit(ctx, []store.Op{{Kind: store.Delete, Key: customer, Expect: recs[0].Rev}}); err != nil {
		return err
	}
	p, err := netip.ParsePrefix(recs[0].Value)
	if err == nil {
		_, err = r.set.Release(p)
	}
	return err
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "delegation")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for start := 1; start <= 2; start++ {
		db, err := boltstore.Open(ctx, filepath.Join(dir, "customers.db"), boltstore.Options{})
		if err != nil {
			return err
		}
		defer db.Close()
		r, err := open(ctx, db)
		if err != nil {
			return err
		}
		fmt.Println("start", start)
		for _, c := range []struct {
			name string
			bits int
		}{{"home-1", 56}, {"office", 48}, {"home-2", 56}, {"carrier", 41}, {"rival", 41}} {
			p, err := r.delegate(ctx, c.name, c.bits)
			if errors.Is(err, ipalloc.ErrFull) {
				fmt.Println(c.name, err)
				continue
			} else if err != nil {
				return err
			}
			fmt.Println(c.name, p)
		}
		if err := r.end(ctx, "home-1"); err != nil {
			return err
		}
		fmt.Println(r.set)
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
