module github.com/ipalloc/ipalloc/ipset/boltstore

go 1.25.0

require (
	github.com/ipalloc/ipalloc v0.0.0-20261129100551-166a4c19ed3c
	go.etcd.io/bbolt v1.5.0
	golang.org/x/sys v0.45.0
)

require go4.org/netipx v0.0.0-20260823151212-3075585bcbeb // indirect
