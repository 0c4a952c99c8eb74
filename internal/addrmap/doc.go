// Package addrmap draws an address space: which parts of a pool are free, held, reserved, cooling or in
// disorder, for a terminal and as SVG.
//
// There is one model. A [Space] is a pool and its spans, each in one [State]; addresses in no span are
// free. [Space.Cells] divides a prefix of it into equal cells with the addresses of each state.
// [Space.Panel] omits empty cells if the space is too large for that. [Space.Gaps] lists the free
// prefixes.
//
// In Hilbert order every aligned prefix is a square or two adjacent squares, so the shape shows full
// and fragmented parts. In rows an address is easily found.
//
// A cell shows the state of most of its taken addresses. There are two exceptions: a single leak
// candidate, or a single held address in a block without owner, determines the cell. So neither
// disappears in a picture of a large pool. For the other states, the mark shows the taken part of the
// cell in eighths, rounded up; a single address in 2^64 is never drawn as free.
//
// Cost: O(spans + cells). The package keeps no state, reads no clock and writes the same bytes for
// the same input.
package addrmap
