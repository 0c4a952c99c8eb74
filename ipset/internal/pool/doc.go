// Package pool is the catalog as a value: pools with their ranges and selectors, how they nest, which of them may serve a
// request, and the record of them all. It is pure. A prepared catalog is immutable; changes of pools are made on a copy.
//
// It imports record and cause.
package pool
