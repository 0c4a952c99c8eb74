// Package world makes a state in which every feature of this module is in use, and
// pictures of such states, for the tests that hold every procedure to every feature.
//
// New fills a store: three spaces, each with pools of every kind, addresses in every
// state, memos, prefix trees and host-local networks. [World.Missing] names each kind of
// record, each field and each option that the world lacks, so a new feature that is not
// put into it fails a test. [Picture] is the decoded whole of a store, by which two
// worlds are compared. [Calls] and [Queries] have an entry for every method of an
// engine.
//
// LAWS.md is the table of the laws: feature by procedure, each cell a test or a reason.
package world
