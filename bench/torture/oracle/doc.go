// Package oracle decides whether the answers of a store.Store to concurrent users are right. It searches for nothing: every
// commit has a revision, so the history is replayed, and each answer is compared with it.
//
//	commit, acknowledged   made once, at its revision; its expectations held there; in real-time order
//	commit, in conflict    not made; the record that it names could have had another revision
//	commit, refused        not made
//	commit, unknown        made once at most
//	guards                 a moment in the interval of the call at which all of them held
//	get                    a moment in the interval of the call at which all records were so
//	list                   exactly the records of its revision, which is one of the interval
//	watch                  each commit with such a key, whole, once, in order
//
// A call without an answer, because its process was killed, is an unknown one. Answers to others show whether its commit was
// made, because every commit puts a unique record under the key of [Mark].
package oracle
