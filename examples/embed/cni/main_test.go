package main

// The plugin answers a runtime.
func Example() {
	main()
	// Output:
	// ADD (a starts) {"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"},{"address":"fd00:1::2/64","gateway":"fd00:1::1"}]}
	// ADD (b starts) {"cniVersion":"1.1.0","ips":[{"address":"10.1.0.3/24","gateway":"10.1.0.1"},{"address":"fd00:1::3/64","gateway":"fd00:1::1"}]}
	// DEL (a ends)
	// DEL (a ends, told again)
	// ADD (c starts) {"cniVersion":"1.1.0","ips":[{"address":"10.1.0.4/24","gateway":"10.1.0.1"},{"address":"fd00:1::4/64","gateway":"fd00:1::1"}]}
	// CHECK (c still has its address)
	// GC (only c is alive, so b's addresses are released)
	// STATUS (the plugin is ready for ADD)
}
