package wire

import "testing"

// A holder is read back as it was written, and any other bytes are refused or are the one form of another holder.
func TestHolderForms(t *testing.T) {
	parts := []string{"\x09", "\x00", "\x02", "\x01h", "\x01p", "\x01a", "\x01b", "\x03", "\x00\x00\x00\x04", "\x00"}
	read := 0
	for flags := range uint64(HolderFlags + 1) {
		if flags&^HolderFlags != 0 {
			continue
		}
		for mask := range 1 << len(parts) {
			s := ""
			for i, part := range parts {
				if mask>>i&1 == 1 {
					s += part
				}
			}
			var h Holder
			r := Reader{S: s}
			if h.Read(&r, flags); r.End() != nil {
				continue
			}
			if read++; h.Flags() != flags || string(h.Append(nil)) != s || h.Seq == 0 {
				t.Fatalf("flags %b, %q: %+v, written %b, %q", flags, s, h, h.Flags(), h.Append(nil))
			}
		}
	}
	if read < 100 {
		t.Errorf("%d holders", read)
	}
}
