// Command peers measures the allocators of this module beside those of other
// projects: the same work, in one run, on two cores.
//
// In each pass every contestant does every work once, one after the other, so
// that a slow minute of the machine falls on all of them. A figure is the median
// over the counted passes, a ratio is the quotient of two medians. Contestants
// are driven by the same generic code through their own methods and their own
// type for a prefix; the contestant "null" does nothing, so that its figure, which
// is part of every other one, is the cost of the driver.
//
// Work on one goroutine is timed by the clock of its thread, so that other
// programs on the machine do not count; work on many goroutines by the wall clock,
// and it is repeated if others took much of the machine meanwhile.
//
//	peers                          measure and print the table
//	peers -readme README.md        and refresh it between the markers in a file
//
// A peer lives in peer_<name>.go, the works of a system in workload_<system>.go.
package main
