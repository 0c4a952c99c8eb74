module github.com/ipalloc/ipalloc/examples

go 1.26.0

require (
	github.com/docker/docker v28.2.2+incompatible
	github.com/ipalloc/ipalloc v0.0.0-20261129100551-166a4c19ed3c
	github.com/ipalloc/ipalloc/ipset/boltstore v0.0.0-20261129100551-166a4c19ed3c
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb
)

require golang.org/x/sync v0.21.0 // indirect

require (
	github.com/Microsoft/go-winio v0.6.2 // indirect
	github.com/containerd/errdefs v1.0.0 // indirect
	github.com/containerd/log v0.2.0 // indirect
	github.com/docker/go-connections v0.8.2 // indirect
	github.com/insomniacslk/dhcp v0.0.0-20260901064844-234b97448fae
	github.com/ishidawataru/sctp v0.0.0-20251114114122-19ddcbc6aae2 // indirect
	github.com/josharian/native v1.1.0 // indirect
	github.com/moby/sys/atomicwriter v0.1.0 // indirect
	github.com/moby/sys/sequential v0.6.0 // indirect
	github.com/moby/sys/userns v0.2.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.14 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	github.com/u-root/uio v0.0.0-20230220225925-ffce2a382923 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	gotest.tools/v3 v3.5.2 // indirect
)
