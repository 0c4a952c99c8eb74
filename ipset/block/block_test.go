package block_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// What is refused is refused with the sentinels that the comments promise.
func TestRefusals(t *testing.T) {
	now, at := time.Unix(1e9, 0), netip.MustParseAddr("10.0.0.1")
	b, err := block.New(netip.MustParsePrefix("10.0.0.0/28"), block.Options{})
	if err == nil {
		_, err = b.Assign(at, alloc.Claim{Handle: "a"}, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Assign(at, alloc.Claim{Handle: "b"}, now); !errors.Is(err, ipalloc.ErrOccupied) {
		t.Errorf("assigned twice: %v", err)
	}
	if err := b.SetAttributes(at, alloc.Guard{Handle: "b"}, alloc.Attributes{}, alloc.Attributes{}); !errors.Is(err, ipalloc.ErrMismatch) {
		t.Errorf("of another: %v", err)
	}
	if err := b.SetAttributes(at.Next(), alloc.Guard{}, alloc.Attributes{}, alloc.Attributes{}); !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Errorf("of nobody: %v", err)
	}
}
