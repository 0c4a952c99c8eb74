package callgrind

// Begin begins the count anew, if valgrind runs the process.
func Begin()
