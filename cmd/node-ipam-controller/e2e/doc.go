// Package e2e runs the node-ipam-controller against a real kube-apiserver and a real
// etcd, which it builds from their modules, on loopback:
//
//	go test -tags e2e -timeout 60m -v ./e2e
//
// The two programs are built once and kept in $XDG_CACHE_HOME/ipalloc, by default
// ~/.cache/ipalloc.
package e2e
