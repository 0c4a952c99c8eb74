package main

import (
	"strings"
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

// A bbolt file in place of a list or an inventory is named as what it is, with the name that it has as a store.
func TestBoltFileIsNoList(t *testing.T) {
	name := newBolt(t, cluster(t))
	env := map[string]string{"IPAMCTL_STORE": name}
	file := strings.TrimPrefix(name, "bolt://")
	for _, args := range [][]string{
		{"diff", file}, {"check", "--all-pools", "--in-use", file}, {"import", file, "--dry-run"},
	} {
		if status, _, stderr := call(t, env, args...); status != exitUsage || !strings.Contains(stderr, "is a bbolt file; as a store its name is "+name) {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
	if status, _, stderr := call(t, env, "show", "10.1.0.240/32"); status != exitNotFound || stderr != "ipamctl: 10.1.0.240 is in no block\n" {
		t.Errorf("status %d, %s", status, stderr)
	}
}
