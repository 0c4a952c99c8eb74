module github.com/ipalloc/ipalloc

go 1.24.0

require (
	github.com/bits-and-blooms/bitset v1.29.0
	github.com/google/go-cmp v0.7.0
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb
)
