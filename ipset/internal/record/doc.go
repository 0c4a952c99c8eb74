// Package record defines the records in the store: their keys, their values, and which index records follow from a block or an
// address. It is pure. Each record has one function that encodes and decodes it, and each index one derivation, which the
// writer, Check, an import and Changes share.
//
// It imports block, space, wire and store.
package record
