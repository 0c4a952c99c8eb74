// Package history records the calls of concurrent users of engines of package ipset, with their answers, and decides whether the
// history is linearizable. It is linearizable if a single allocator would give the same answers in some order of the calls. In
// that order, a call that began after the end of another comes later. The check uses porcupine.
//
// There are three models. [Check] looks at one address at a time, which is fast and covers handles, and at one handle at a time: all
// calls of Assign for a handle return the address that it holds, and a release for another host releases nothing. [CheckPool] looks
// at a whole small pool, and so also covers the answer that the pool is full. A call of unknown outcome and its repetition with the same
// request key are one operation, from the first call to the last answer.
//
// The tests also record the commits of the engines. The checker of the transitions in internal/test/protocol replays them in the order of
// their revisions. It knows which calls were under way during a commit.
package history
