// Command cni-ipam is a CNI plugin that hands out addresses, a replacement for host-local: the same configuration and the
// same answers, with its state in one file per network. README.md says how to swap one for the other.
package main

import "github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/plugin"

func main() { plugin.Main(nil) }
