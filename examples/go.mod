module github.com/ipalloc/ipalloc/examples

go 1.26.0

require (
	github.com/ipalloc/ipalloc v0.0.0-20261122125819-c3c0557d1ef8
	github.com/ipalloc/ipalloc/ipset/boltstore v0.0.0-20261122125819-c3c0557d1ef8
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb
)

require (
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
)
