// Package tsaddr has the addresses that Tailscale keeps for itself.
package tsaddr
