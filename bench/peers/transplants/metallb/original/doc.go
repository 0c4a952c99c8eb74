// Package allocator is where the test lays MetalLB's own allocator, to be measured beside the adapter.
package allocator
