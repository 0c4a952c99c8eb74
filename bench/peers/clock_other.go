//go:build !linux

package main

import "time"

// threadTime is wall time where there is no clock of a thread to read.
func threadTime() time.Duration { return time.Since(start) }

// processTime is unknown; so is what others take of the machine.
func processTime() time.Duration { return 0 }
