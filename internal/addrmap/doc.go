// Package addrmap draws an address space: which parts of a pool are free, held, reserved, cooling or in
// disorder, for a terminal and as SVG.
//
// There is one model. A [Space] is a pool and its spans, each in one [State]; what lies in no span is
// free. [Space.Cells] cuts a prefix of it into equal cells with the addresses of each state,
// [Space.Panel] omits empty cells where the space is too large for that, and [Space.Gaps] lists the
// free prefixes.
//
// In Hilbert order every aligned prefix is a square, or two squares side by side, so the shape shows
// what is full and what is in pieces; in rows an address is easily found.
//
// A cell is drawn in the state that most of its taken addresses are in, with two exceptions: one
// leak candidate, or one held address in a block without owner, decides how a cell is drawn, so neither
// disappears in a picture of a large pool. The other states are drawn as far as the cell is taken, in
// eighths, rounded up; one address in 2^64 is never drawn as free.
//
// Cost: O(spans + cells). The package keeps no state, reads no clock and writes the same bytes for
// the same input.
package addrmap
