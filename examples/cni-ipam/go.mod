module github.com/ipalloc/ipalloc/examples/cni-ipam

go 1.25.0

require (
	github.com/containernetworking/cni v1.3.1
	github.com/ipalloc/ipalloc v0.0.0
	github.com/ipalloc/ipalloc/ipset/boltstore v0.0.0
	github.com/vishvananda/netns v0.0.4
	golang.org/x/sys v0.45.0
)

require (
	go.etcd.io/bbolt v1.5.0 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
)
