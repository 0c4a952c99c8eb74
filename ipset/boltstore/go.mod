module github.com/ipalloc/ipalloc/ipset/boltstore

go 1.25.0

require (
	github.com/ipalloc/ipalloc v0.0.0-20261129095949-2bb0f791bfe7
	go.etcd.io/bbolt v1.5.0
	golang.org/x/sys v0.45.0
)

require go4.org/netipx v0.0.0-20260823151212-3075585bcbeb // indirect
