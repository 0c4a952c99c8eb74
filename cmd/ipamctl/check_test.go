package main

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset"
)

// Every kind of finding is a sentence, not the name of the kind.
func TestEveryFindingIsASentence(t *testing.T) {
	for _, kind := range []ipset.ProblemKind{
		ipset.ProblemDamaged, ipset.ProblemOverlapping, ipset.ProblemWrongSize, ipset.ProblemNoPool, ipset.ProblemStrayAddress, ipset.ProblemLostAddress,
		ipset.ProblemLostBlock, ipset.ProblemStaleIndex, ipset.ProblemMissingIndex, ipset.ProblemWrongOwner, ipset.ProblemWrongPage,
		ipset.ProblemOldGeneration, ipset.ProblemUnused, ipset.ProblemNotHeld, ipset.ProblemOtherHandle, ipset.ProblemUsedTwice, ipset.ProblemOutsideOfPool,
	} {
		if sentences[kind] == "" {
			t.Errorf("%q has no sentence", kind)
		}
	}
}
