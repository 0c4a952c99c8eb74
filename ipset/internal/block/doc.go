// Package block has the unit in which ipset hands out addresses: a block, its addresses, and the records that a store keeps of
// them, for the engine. It is pure: it reads no clock and no store.
//
// # Terms
//
// A block is a prefix of at most 2^64 addresses, numbered by ordinals from 0 at its base address. An ordinal is held, free,
// cooling (released, and not yet assigned again) or reserved (one of the first or last). An owner has the block; a host is
// what an address is held for. A handle is the caller's key of an address, and a sequence number tells one allocation of an
// address from all later ones.
//
// The methods take ordinals and nanoseconds since 1970, check no condition and reveal what has to be written. Package ipset/block is
// the face of this one for programs that keep blocks themselves; its Block is converted from and to the one here without cost.
//
// # Records
//
// The record of a block ([Block.Append], [Decode]) has its owner, its queue and its counts, and each held or cooling address
// has a record of its own ([Address.Append], [DecodeAddress]). So the bytes that an assignment writes do not depend on how
// many addresses are held. A decoded block knows the state of every ordinal. The addresses are absent until
// [Block.LoadRecord] loads them. With [Block.Track], a block notes which address records change.
//
// # Invariants
//
// Every ordinal is in exactly one state. The queue has each free ordinal once, in the order of their release. The cooling
// ordinals are in the order of their release. Sequence numbers only grow. A record has one form: what decodes is coded to
// the same bytes. [Block.Check] verifies all of it.
//
// # Cost
//
// Assigning, releasing and looking at an address cost O(1) amortised, and allocate nothing in steady state while no engine
// tracks the block. A new block is one span of its queue whatever its size; memory grows with what is held. Taking a named
// address out of the queue costs the spans before it, and out of the cooling ones their number.
package block
