package main

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/audit"
)

// Every kind of finding is a sentence, not the name of the kind.
func TestEveryFindingIsASentence(t *testing.T) {
	for _, kind := range []audit.Kind{
		audit.Damaged, audit.Overlapping, audit.WrongSize, audit.NoPool, audit.StrayAddress, audit.LostAddress,
		audit.LostBlock, audit.StaleIndex, audit.MissingIndex, audit.WrongOwner, audit.WrongPage,
		audit.OldGeneration, audit.Unused, audit.NotHeld, audit.OtherHandle, audit.UsedTwice, audit.OutsideOfPool,
	} {
		if sentences[kind] == "" {
			t.Errorf("%q has no sentence", kind)
		}
	}
}
