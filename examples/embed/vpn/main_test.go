package main

// Machines keep their addresses over a restart.
func Example() {
	main()
	// Output:
	// day 1
	// laptop 100.64.9.0 fd7a:115c:a1e0:8:68e9:d924:e7a2:3100
	// phone 100.64.13.0 fd7a:115c:a1e0:9:68e9:d924:e7a2:3100
	// day 2
	// laptop 100.64.9.0 fd7a:115c:a1e0:8:68e9:d924:e7a2:3100
	// phone 100.64.13.0 fd7a:115c:a1e0:9:68e9:d924:e7a2:3100
	// 100.64.8.77 is taken by printer
	// released [100.64.8.77] refused to another: true
}
