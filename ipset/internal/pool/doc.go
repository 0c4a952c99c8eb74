// Package pool is the catalog as a value: pools with their ranges and selectors, their nesting, the choice of pools for a
// request, and their record. It is pure. A prepared catalog is immutable; changes of pools are made on a copy.
//
// It imports record and cause.
package pool
