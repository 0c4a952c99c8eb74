// Package ipallocator puts servicealloc.Range and servicealloc.Registry in the place of Kubernetes'
// allocators of service addresses.
package ipallocator
