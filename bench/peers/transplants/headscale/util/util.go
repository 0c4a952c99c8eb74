//go:build transplant

// Package util compares what headscale's tests compare.
package util

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
)

var Comparers = []cmp.Option{cmp.Comparer(func(x, y netip.Addr) bool { return x == y })}
