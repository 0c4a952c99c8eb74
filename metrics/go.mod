module github.com/ipalloc/ipalloc/metrics

go 1.25.0

require (
	github.com/ipalloc/ipalloc v0.0.0-20261129100551-166a4c19ed3c
	github.com/ipalloc/ipalloc/ipset/boltstore v0.0.0-20261129100551-166a4c19ed3c
	github.com/prometheus/client_golang v1.23.2
	github.com/prometheus/client_model v0.6.2
	github.com/prometheus/common v0.66.1
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/sys v0.45.0 // indirect
	google.golang.org/protobuf v1.36.8 // indirect
)
