package main

// Customers keep their prefixes over a restart.
func Example() {
	main()
	// Output:
	// start 1
	// home-1 2001:db8::/56
	// office 2001:db8:1::/48
	// home-2 2001:db8:0:100::/56
	// carrier 2001:db8:80::/41
	// rival cidrset: allocate /41 in 2001:db8::/40: no free prefix of that length (largest is /42)
	// 2001:db8::/40 in /56: 33025 used, 0 cooling, 32511 free
	// start 2
	// home-1 2001:db8::/56
	// office 2001:db8:1::/48
	// home-2 2001:db8:0:100::/56
	// carrier 2001:db8:80::/41
	// rival cidrset: allocate /41 in 2001:db8::/40: no free prefix of that length (largest is /42)
	// 2001:db8::/40 in /56: 33025 used, 0 cooling, 32511 free
}
