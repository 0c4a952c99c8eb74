// Package history records what concurrent users of engines of package ipset did and were told, and decides whether there is an
// order, consistent with who waited for whom, in which a single allocator would have answered the same: whether
// the history is linearizable. It does so with porcupine.
//
// Two models: [Check] looks at one address at a time, which is fast and knows handles; [CheckPool] looks at
// a whole small pool, and so also at the answer that nothing is free. A call whose outcome was unknown and that was repeated with
// its request key is one operation, from the first call to the last answer.
package history
