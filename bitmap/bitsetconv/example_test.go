package bitsetconv_test

import (
	"fmt"

	"github.com/bits-and-blooms/bitset"

	"github.com/ipalloc/ipalloc/bitmap/bitsetconv"
)

// To a flat bit set and back.
func Example() {
	s := bitset.New(100).Set(3).Set(64)
	b := bitsetconv.From(s)
	back, err := bitsetconv.To(b)
	fmt.Println(b.Len(), b.Test(64), back.Equal(s), err)
	// Output: 100 true true <nil>
}
