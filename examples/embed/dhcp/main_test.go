package main

// Leases begin, end and come back.
func Example() {
	main()
	// Output:
	// offer 192.168.1.100 request: <nil> by another: NAK
	// renew too late: NAK
	// after a restart 192.168.1.101 and 192.168.1.100 again
	// declined, offer 192.168.1.102 full: true
}
