// Command cni-ipam is a CNI IPAM plugin that replaces host-local. It takes the same configuration, gives the same
// answers, and keeps its state in one file per network. README.md shows how to swap one for the other.
package main

import "github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/plugin"

func main() { plugin.Main(nil) }
