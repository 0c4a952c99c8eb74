// Package model holds slow, obviously right twins of the allocators. A test
// drives a twin and the real allocator with the same trace and compares
// answers, errors and states after every step; see [Trace] for the traces.
package model
