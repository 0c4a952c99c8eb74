module github.com/ipalloc/ipalloc/bench/torture

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/ipalloc/ipalloc v0.0.0
	github.com/ipalloc/ipalloc/ipset/boltstore v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	go.etcd.io/bbolt v1.5.0 // indirect
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/ipalloc/ipalloc => ../..
	github.com/ipalloc/ipalloc/ipset/boltstore => ../../ipset/boltstore
	github.com/ipalloc/ipalloc/ipset/etcdstore => ../../ipset/etcdstore
)
