package main

// What a runtime handed out is there after a restart.
func Example() {
	main()
	// Output:
	// refused: cidrset: claim 172.20.0.0/24 in 172.20.0.0/14: occupied at 172.20.0.0/24
	// 172.20.0.0/24 172.20.0.1 172.20.0.2 port 49152
	// left: [ports subnets]
}
