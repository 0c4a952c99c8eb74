// Package record knows what the store keeps: the keys, what the values say, and which index records follow from a block or an
// address. It is pure. Each record has one function for both directions, and each index one derivation, which the writer, Check,
// an import and Changes share.
//
// It imports block, space, wire and store, and no other room.
package record
