// Package spacemap draws an address space: which parts of a pool are taken, and by what kind of
// owner, as text for a terminal and as SVG.
//
// The pool is cut into equal cells, each an aligned prefix. A row of the picture is an aligned
// prefix too, because the number of columns is a power of two; so a boundary that an operator knows
// (a /16, a nibble of an IPv6 address) falls between cells, never through one. The pool may be of
// either family and any length, from a single address to ::/0.
//
// What lies in the pool comes as layers: a label and the prefixes that carry it, for instance one
// layer for each class of owner. Prefixes may overlap, within a layer or between layers; an address
// then belongs to the longest prefix around it, as in a routing table, and among equal prefixes to
// the later layer. Every address counts once.
//
// A cell shows how much of it is taken in five steps: nothing, below a third, below two thirds,
// more, everything. The first and the last are exact: one address in 2^64 is never drawn as free,
// and one free address in 2^64 never as full. A cell shared by several layers is drawn in the
// colour of the one that has most of it, of equals the one listed first.
//
// Cost: O(p log p + cells) for p prefixes. The functions keep no state, read no clock and write the
// same bytes for the same input, so a picture can be compared in a test. They write with one call
// once the whole picture is made: an error leaves nothing written but what w itself took.
package spacemap
