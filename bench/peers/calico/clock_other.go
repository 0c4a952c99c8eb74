//go:build !linux

package main

import "time"

// processTime is wall time where there is no clock of a process to read.
func processTime() time.Duration { return time.Since(start) }
