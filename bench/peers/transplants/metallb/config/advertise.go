//go:build transplant

// Package config is where the test lays MetalLB's types of pools.
package config

// Advertisements are nothing that an allocator reads.
type (
	BGPAdvertisement struct{}
	L2Advertisement  struct{}
)
