package main

// Services get what they ask for, and give it back.
func Example() {
	main()
	// Output:
	// shop/web [203.0.113.0]
	// shop/dns [203.0.113.1]
	// data/db [10.9.0.0]
	// shop/late is pending: ipset: assign for "virtual:loadbalancer": not enough addresses: public: full
	// dns is deleted
	// shop/web [203.0.113.0]
	// data/db [10.9.0.0]
	// shop/dns is gone and gave back 203.0.113.1
	// shop/web [203.0.113.0]
	// data/db [10.9.0.0]
	// shop/late [203.0.113.1]
}
