package main

// must returns v; an error is the end of the run.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// check ends the run if there is an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
