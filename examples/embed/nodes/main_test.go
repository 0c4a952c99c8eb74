package main

// Nodes get prefixes, also after a restart.
func Example() {
	main()
	// Output:
	// a [10.0.1.0/24 fd00:10::/64]
	// b [10.0.2.0/24 fd00:10:0:1::/64]
	// a [10.0.1.0/24 fd00:10::/64]
}
