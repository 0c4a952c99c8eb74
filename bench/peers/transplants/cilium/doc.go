// Package ipallocator puts ipset.Engine in the place of Cilium's range of service addresses.
package ipallocator
