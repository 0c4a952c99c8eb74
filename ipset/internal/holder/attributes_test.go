package holder

import (
	"strings"
	"testing"
)

// Keys ascend, none stands twice, and the lengths are those of the texts.
func TestValidAttributes(t *testing.T) {
	for code, want := range map[string]bool{
		"":                    true,
		"\x00\x00":            true,
		"\x01a\x01x\x01b\x00": true,
		"\x01a\x01x\x01a\x00": false,
		"\x01b\x01x\x01a\x00": false,
		"\x00\x00\x00\x00":    false,
		"\x01a\x02x":          false,
		"\x01a":               false,
		"\x00\xff\xff\x03" + strings.Repeat("x", 1<<16-1): false,
	} {
		if got := AttributesOf(code).Valid(); got != want {
			t.Errorf("%.20q: %v", code, got)
		}
	}
}
