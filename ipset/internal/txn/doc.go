// Package txn is a transaction of the engine: the catalog, blocks, owners and pages as cells of package occ, how plans read and
// find them, what they write, and what a plan may add to a commit. It also has the state of one engine that the packages above
// it share.
//
// A plan reads and decides first and changes blocks last, because a changed block is restored only on a store that limits
// commits. There the size of a commit is measured by writing it, and a plan that does not fit is undone. The commit verifies
// everything that the plan has read and not explicitly left out.
//
// It imports record, pool, cause and occ; assign, query, release, check and admin import it.
package txn
