// Package block implements, for the engine, the unit of assignment of ipset: a block, its addresses, and their records in
// a store. It is pure: it reads no clock and no store.
//
// # Terms
//
// A block is a prefix of at most 2^64 addresses, numbered by ordinals from 0 at its base address. An ordinal is held, free,
// cooling (released, and not yet assigned again) or reserved (at an end of the block). An owner has the block; an address
// is held for a host. A handle is the caller's key of an address, and a sequence number tells one allocation of an address
// from all later ones.
//
// The methods take ordinals and nanoseconds since 1970, check no preconditions and report what must be written. Package
// ipset/block is the public form, for programs that keep blocks themselves; its Block converts to and from this one at no cost.
//
// # Records
//
// The record of a block ([Block.Append], [Decode]) has its owner, its queue and its counts. Each held or cooling address has
// a record of its own ([Address.Append], [DecodeAddress]). So the bytes that an assignment writes do not depend on how many
// addresses are held. A decoded block knows the state of every ordinal. The addresses are absent until [Block.LoadRecord]
// loads them. With [Block.Track], a block notes which address records change.
//
// # Invariants
//
// Every ordinal is in exactly one state. The queue has each free ordinal once, in the order of their release. The cooling
// ordinals are in the order of their release. Sequence numbers only grow. A record has one form: a decoded record encodes
// to the same bytes. [Block.Check] verifies all of it.
//
// # Cost
//
// Assigning, releasing and looking at an address cost O(1) amortised, and allocate nothing in steady state while no engine
// tracks the block. A new block of any size is one span of its queue; memory grows with the addresses held. Assigning a
// named address costs O(spans before it) of the queue, or O(cooling addresses) if it is cooling.
package block
