package record

import (
	"net/netip"
	"strings"
	"testing"
)

// TestForeignKeys: every upper-case letter, and nothing else, begins the key of another program.
func TestForeignKeys(t *testing.T) {
	for b := range 256 {
		if got, want := IsForeign(string([]byte{byte(b), 'x'})), b >= 'A' && b <= 'Z'; got != want {
			t.Errorf("%q: %v", b, got)
		}
	}
}

// TestKeysHaveOneForm: a key of a block, an address or a page names what it was made of, and no key that is shorter, longer, or of the
// other family does.
func TestKeysHaveOneForm(t *testing.T) {
	for _, s := range []string{"0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "255.255.255.255/32", "::/0", "fd00::/64", "fd00::1/128"} {
		p := netip.MustParsePrefix(s)
		id := string(AppendBlockID(nil, p))
		if got, ok := ParseBlockID(id); !ok || got != p {
			t.Errorf("%v is read as %v, %v", p, got, ok)
		}
		key := AddressKey(p.Addr())
		if got, ok := ParseAddressKey(key); !ok || got != p.Addr() {
			t.Errorf("%v is read as %v, %v", p.Addr(), got, ok)
		}
		other := map[byte]string{'4': "6", '6': "4"}[id[0]]
		bad := []string{other + id[1:], "5" + id[1:], id + "\x00", id[:len(id)-1] + string([]byte{byte(p.Addr().BitLen() + 1)})}
		if p.Bits() > 0 && p.Bits() < p.Addr().BitLen() {
			bad = append(bad, id[:len(id)-2]+"\x01"+id[len(id)-1:]) // not masked
		}
		for n := range len(id) {
			bad = append(bad, id[:n])
		}
		for _, id := range bad {
			if got, ok := ParseBlockID(id); ok {
				t.Errorf("%q is %v", id, got)
			}
		}
		bad = []string{KindAddress + other + key[2:], KindAddress + "5" + key[2:], key + "\x00", "z" + key[1:]}
		for n := range len(key) {
			bad = append(bad, key[:n])
		}
		for _, key := range bad {
			if got, ok := ParseAddressKey(key); ok {
				t.Errorf("%q is %v", key, got)
			}
		}
		leaf, _ := LeafOf(p)
		key = leaf.Key()
		if got, ok := ParsePageKey(key); !ok || got != leaf {
			t.Errorf("%v is read as %v, %v", leaf, got, ok)
		}
		if floor := leaf.Floor(); floor.Key() != key[:3]+"\xff"+strings.Repeat("\x00", len(key)-5)+string([]byte{key[len(key)-1] & 63}) {
			t.Errorf("the floor of %q is %q", key, floor.Key())
		}
		bad = []string{KindPage + other + key[2:], KindPage + "5" + key[2:], key + "\x00", "z" + key[1:]}
		for n := range len(key) {
			bad = append(bad, key[:n])
		}
		for _, key := range bad {
			if got, ok := ParsePageKey(key); ok {
				t.Errorf("%q is %v", key, got)
			}
		}
	}
	mapped := netip.MustParseAddr("::ffff:10.0.0.1")
	if got, ok := ParseAddressKey(KindAddress + "6" + string(mapped.AsSlice())); ok {
		t.Errorf("a mapped address is %v", got)
	}
	if got, ok := ParseID("6" + string(mapped.AsSlice()) + "\x80"); ok {
		t.Errorf("a mapped address is %v", got)
	}
}
