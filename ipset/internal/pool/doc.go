// Package pool is the catalog as a value: pools with their ranges and selectors, how they nest, which of them may serve a request,
// and the record of them all. It is pure. A catalog that has been prepared does not change; what changes pools works on a copy.
//
// It imports record and cause of the rooms.
package pool
