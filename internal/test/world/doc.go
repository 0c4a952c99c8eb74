// Package world makes a state that uses every feature of this module, and pictures of
// such states. Its tests check every procedure with every feature.
//
// New fills a store: three spaces, each with pools of every kind, addresses in every
// state, memos, prefix trees and host-local networks. [World.Missing] names each kind of
// record, each field and each option that the world lacks, so a new feature that is not
// put into it fails a test. [Picture] is the decoded content of a store; tests compare
// worlds by it. [Calls] and [Queries] have an entry for every method of an engine.
//
// LAWS.md is the table of the laws: feature by procedure, each cell a test or a reason.
package world
