// Package occ implements optimistic transactions on a store, for packages ipset, hostlocal and prefixes.
//
// Terms: a cell is the cached state of one record: its key, its revision and its decoded content. A plan is one caller's
// part of a transaction: it reads cells, decides, and changes cells. A transaction is one commit in the making, with the
// plans of all callers that wait for it.
//
// # A plan
//
// A plan is a method or a function that gets the transaction:
//
//	func(t *txn) error {
//		if err := t.Load(keyOfA, keyOfB); err != nil { // one round trip
//			return err
//		}
//		a, ok, err := t.Get(keyOfA)
//		if err != nil || !ok {
//			return errors.Join(err, errNoA)
//		}
//		t.Put(keyOfB, a)
//		return nil
//	}
//
// Every record that a plan reads is guarded: the commit names its revision, and conflicts if another engine has changed it.
// Then the records are read again in one round trip, and the plan runs again. So a plan must start from the beginning each
// time, and must keep nothing from an earlier run.
//
// The error of a plan is an answer, too. Its caller gets it once the commit has verified the records that the plan has read.
// An error of the store while the plan reads is no answer: nothing is verified then.
//
// # Cells
//
// Records are texts unless another kind is registered for them with [Txn.Register]. A [Cache] of typed cells keeps
// decoded content from one transaction to the next; the commit detects stale cells. [Var] is the content of a cell that
// is replaced as a whole.
//
// # Savepoints
//
// Plans change cells at once, so that the next plan of the same transaction sees the change. If a plan returns an error, texts
// and [Var]s get back the content that they had when it began. Content that changes in place, such as a block of addresses, is
// copied only where the store limits commits, because a copy would slow every assignment. So a plan changes such content last,
// and can fail after that only for the limit. [Txn.Change] marks such a cell before it changes, and a [Keeper] makes the copy.
//
// The size of a commit is measured by writing it: [Txn.Room] writes the changed cells into a buffer. [Fit] makes a plan for as
// many things as fit, so no plan has to estimate a size.
//
// # Callers
//
// A [Runner] combines the calls of many goroutines. A caller that finds it idle carries out its own plan, alone and at once.
// The calls that come meanwhile wait and share the next commit, if it has room for them. A caller that leaves before its
// plan has run leaves no trace. A caller that leaves later does not learn the outcome.
//
// After a conflict all plans of the commit run again. After some conflicts they run one by one, so that a plan whose records
// never stop changing fails alone.
//
// A commit of unknown outcome is settled before anything else is planned. A commit is made only if all its expectations hold.
// So the runner makes one expectation false: it writes a record that the commit names again, with its present content. If
// that meets a conflict, the commit has been made or can no longer be made.
//
// A panic of a plan, a store or a clock reaches the callers of the commit. The cache is then emptied, and the runner remains
// usable.
package occ
