package holder

import (
	"testing"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// A holder is read back as it was written, and any other bytes are refused or are the one form of another holder.
func TestHolderForms(t *testing.T) {
	parts := []string{"\x09", "\x00", "\x02", "\x01h", "\x01p", "\x01a", "\x01b", "\x03", "\x00\x00\x00\x04", "\x00"}
	h := Parts{Kind: new(uint8), Host: new(string), Handle: new(string), Active: new(Attributes), Alternate: new(Attributes),
		Seq: new(uint64), Until: new(int64), Borrowed: new(bool), Indexed: new(uint64), First: new(bool), Since: new(uint32)}
	read := 0
	for mask := range 1 << len(parts) {
		s := ""
		for i, part := range parts {
			if mask>>i&1 == 1 {
				s += part
			}
		}
		for flags := range uint64(addrFirst << 2) {
			*h.Kind, *h.Host, *h.Handle, *h.Active, *h.Alternate = 0, "", "", Attributes{}, Attributes{}
			*h.Until, *h.Indexed, *h.Since = 0, 0, 0
			c, again := wire.Read(s), wire.Write(nil)
			if h.Code(c, flags); c.End() != nil {
				continue
			}
			if h.Code(again, h.Flags()); h.Flags() != flags&^(AddrCooling|AddrShared) || string(again.B) != s || *h.Seq == 0 {
				t.Fatalf("flags %b, %q: %+v, written %b, %q", flags, s, h, h.Flags(), again.B)
			}
			read++
		}
	}
	if read < 100 {
		t.Errorf("%d holders", read)
	}
}
