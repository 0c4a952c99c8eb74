//go:build transplant

// Package tsaddr has the addresses that Tailscale keeps for itself.
package tsaddr

import "net/netip"

func CGNATRange() netip.Prefix        { return netip.MustParsePrefix("100.64.0.0/10") }
func ChromeOSVMRange() netip.Prefix   { return netip.MustParsePrefix("100.115.92.0/23") }
func TailscaleULARange() netip.Prefix { return netip.MustParsePrefix("fd7a:115c:a1e0::/48") }

func TailscaleServiceIP() netip.Addr   { return netip.MustParseAddr("100.100.100.100") }
func TailscaleServiceIPv6() netip.Addr { return netip.MustParseAddr("fd7a:115c:a1e0::53") }
