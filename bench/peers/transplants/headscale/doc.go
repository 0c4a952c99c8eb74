// Package db puts ipset.Engine in the place of headscale's allocator of the addresses of nodes.
package db
