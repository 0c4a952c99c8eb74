package record

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// numbered returns n blocks of both families, in address order.
func numbered(n int) (blocks []netip.Prefix) {
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 64}), 26)
		if i >= n/2 {
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 14: byte(i)}), 122)
		}
		blocks = append(blocks, p)
	}
	return blocks
}

// TestOwnerBytes: the record of an owner has one form, and every other one is refused. Few blocks are listed, many are counted.
func TestOwnerBytes(t *testing.T) {
	for _, n := range []int{1, 2, MaxListed - 1, MaxListed, MaxListed + 1, 1 << 20} {
		o := Owned{N: n}
		if n < 100 {
			o = OwnedOf(numbered(n))
		}
		whole := string(o.Append(nil))
		if o = o.Settled(); o.Listed() != (n <= MaxListed) {
			t.Errorf("%d blocks: %+v", n, o)
		}
		got, err := DecodeOwned(store.Record{Rev: 1, Value: whole})
		if err != nil || got.N != n || !slices.Equal(got.Blocks, o.Blocks) {
			t.Errorf("%d: %+v, %v", n, got, err)
		}
		for i := range whole {
			if _, err := DecodeOwned(store.Record{Rev: 1, Value: whole[:i]}); err == nil {
				t.Errorf("%d of %d bytes are taken for %d blocks", i, len(whole), n)
			}
		}
		if _, err := DecodeOwned(store.Record{Rev: 1, Value: whole + "x"}); err == nil {
			t.Error("bytes after the blocks are passed over")
		}
		for i := range whole {
			for bit := range 8 {
				b := []byte(whole)
				b[i] ^= 1 << bit
				if got, err := DecodeOwned(store.Record{Rev: 1, Value: string(b)}); err == nil && string(got.Append(nil)) != string(b) {
					t.Fatalf("%d blocks, bit %d of byte %d: %+v", n, bit, i, got)
				}
			}
		}
	}
	twice := OwnedOf([]netip.Prefix{numbered(1)[0], numbered(1)[0]})
	for _, bad := range []string{"", "\x01", "\x02\x01", "\x01\x00", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", string(twice.Append(nil))} {
		if o, err := DecodeOwned(store.Record{Rev: 1, Value: bad}); err == nil {
			t.Errorf("%q is %+v", bad, o)
		}
	}
	if o, err := DecodeOwned(store.Record{}); o.N != 0 || err != nil {
		t.Errorf("no record: %+v, %v", o, err)
	}
}
