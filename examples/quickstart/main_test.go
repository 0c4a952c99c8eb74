package main

// The quickstart prints what the README says it prints.
func Example() {
	main()
	// Output:
	// occupied 1
	// allocated 10.0.0.0/24
	// allocated 10.0.2.0/24
	// allocated 10.0.3.0/24
	// full
	// released 1
	// after the restart 10.0.2.0/24
}
