// Command peers measures the allocators of this module beside other projects: the
// same work, in one run, on two cores.
//
// In each pass every contestant does every work once, one after the other, so a
// slow minute of the machine affects all of them. A figure is the median over the
// counted passes, a ratio is the quotient of two medians. The same generic code
// drives all contestants through their own methods and their own type for a
// prefix. The contestant "null" does nothing, so its figure is the cost of the
// driver, which is part of every other figure.
//
// Work on one goroutine is timed by the CPU clock of its thread, which excludes
// other programs. Work on many goroutines is timed by the wall clock, and repeated
// if other programs took much of the machine meanwhile.
//
//	peers                          measure and print the table
//	peers -readme README.md        and refresh it between the markers in a file
//
// A peer lives in peer_<name>.go, the works of a system in workload_<system>.go.
package main
