package main

// The plugin answers a runtime.
func Example() {
	main()
	// Output:
	// ADD a {"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"},{"address":"fd00:1::2/64","gateway":"fd00:1::1"}]}
	// ADD b {"cniVersion":"1.1.0","ips":[{"address":"10.1.0.3/24","gateway":"10.1.0.1"},{"address":"fd00:1::3/64","gateway":"fd00:1::1"}]}
	// DEL a
	// DEL a
	// ADD c {"cniVersion":"1.1.0","ips":[{"address":"10.1.0.4/24","gateway":"10.1.0.1"},{"address":"fd00:1::4/64","gateway":"fd00:1::1"}]}
	// CHECK c
	// GC
	// STATUS
}
