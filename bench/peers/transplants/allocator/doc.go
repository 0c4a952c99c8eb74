// Package allocator puts servicealloc.Ports in the place of Kubernetes' bitmap of offsets.
package allocator
