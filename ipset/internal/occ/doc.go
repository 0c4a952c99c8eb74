// Package occ makes optimistic transactions on a store: package ipset, hostlocal and prefixes are written on it.
//
// Terms: a cell is what is known of one record, its key and its revision, and with it the decoded content of the record. A
// plan is one caller's part of a transaction: it reads cells, decides, and changes cells. A transaction is one commit in the
// making, with the plans of all callers that wait for it.
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
// Whatever a plan reads is guarded: the commit names its revision, and is in conflict if another engine has changed it. Then
// the plan runs again, on records that have been read again in one round trip. So a plan must begin again each time, and must
// not keep what an earlier run has found.
//
// The error of a plan is an answer, too. Its caller gets it once the commit has verified what it rests upon. An error of the
// store while the plan reads is no answer: nothing is verified then.
//
// # Cells
//
// Records are texts unless a kind of their own is registered with [Txn.Register]. A [Cache] of typed cells keeps decoded
// content from one transaction to the next; what is stale is found by the commit. [Var] is the content of a cell that is
// replaced as a whole.
//
// # Savepoints
//
// Plans change cells at once, so that the next plan of the same transaction sees the change. If a plan returns an error, texts
// and [Var]s get back the content that they had when it began. Content that changes in place, such as a block of addresses, is
// copied only where the store limits commits, because a copy would cost every assignment something: a plan changes it last and fails
// after that for nothing but the limit. [Txn.Change] marks such a cell before it changes, and a [Keeper] makes the copy.
//
// What a commit takes is counted by writing it: [Txn.Room] writes the changed cells into a buffer. [Fit] makes a plan for as many
// things as fit, so no plan estimates beside its writer what it will write.
//
// # Callers
//
// A [Runner] combines the calls of many goroutines. A caller that finds it idle carries out its own plan, alone and at once.
// The calls that come meanwhile wait and share the next commit, as far as it has room for them. A caller that leaves before
// its plan has run leaves no trace. The outcome is unknown to one that leaves later.
//
// After a conflict all plans of the commit run again. After some conflicts they run one by one, so that one whose records never
// stop changing fails alone.
//
// A commit of unknown outcome is settled before anything else is planned. All expectations of a commit must hold for it to be
// made, so one of them is made false: a record that the commit names is written again, with the content that it has. If that
// meets a conflict, the commit has been made or can no longer be made.
//
// A panic of a plan, a store or a clock reaches the callers of the commit. All that is cached is forgotten then, and the runner
// remains usable.
package occ
