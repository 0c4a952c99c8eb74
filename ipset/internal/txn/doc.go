// Package txn is a transaction of the engine: the catalog, blocks, owners and pages as cells of package occ, how plans read and
// find them, what they write, and what a plan may add to a commit. It also has what the rooms share of one engine.
//
// A plan reads and decides first and changes blocks last, because a changed block is restored only where the store limits commits: there
// what a commit takes is counted by writing it, and a plan that does not fit is taken back. The commit
// verifies everything that the plan has read and not explicitly left out.
//
// It imports record, pool and cause of the rooms, and occ; assign, query, release, check and admin stand on it.
package txn
