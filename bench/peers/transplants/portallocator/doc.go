// Package portallocator puts servicealloc.Ports in the place of Kubernetes' allocator of node ports.
package portallocator
