package bitmap_test

import (
	"fmt"

	"github.com/ipalloc/ipalloc/bitmap"
)

func Example() {
	b := bitmap.New(1 << 16)
	b.SetRange(0, 99)
	fmt.Println(b.SetNextClear(50))
	b.Clear(7)
	fmt.Println(b.SetNextClear(0))
	fmt.Println(b.Count())
	// Output:
	// 100 true
	// 7 true
	// 101
}

// A cursor that goes round: what is given back is not handed out again until all
// the rest has been.
func Example_nextFit() {
	b := bitmap.New(4)
	cursor := uint64(0)
	take := func() {
		x, ok := b.SetNextClear(cursor)
		if !ok {
			fmt.Println("full")
			return
		}
		last, _ := b.Last()
		if cursor = x + 1; x == last {
			cursor = 0
		}
		fmt.Println("took", x)
	}
	take()
	take()
	b.Clear(0)
	take()
	take()
	take()
	take()
	// Output:
	// took 0
	// took 1
	// took 2
	// took 3
	// took 0
	// full
}

// Children of several sizes out of one set: the smallest block that will do is
// broken, so that the large ones stay whole.
func ExampleBitmap_BestFit() {
	b := bitmap.New(64)
	b.SetRange(0, 40) // 41 is clear, 42-43, 44-47 and 48-63
	for _, k := range []int{1, 3, 0, 2, 4} {
		lo, ok := b.BestFit(k)
		if !ok {
			fmt.Printf("no run of %d\n", 1<<k)
			continue
		}
		hi := lo + 1<<k - 1
		b.SetRange(lo, hi)
		fmt.Printf("%d for %d-%d\n", 1<<k, lo, hi)
	}
	k, _ := b.MaxClearOrder()
	fmt.Println("largest left:", 1<<k)
	// Output:
	// 2 for 42-43
	// 8 for 48-55
	// 1 for 41-41
	// 4 for 44-47
	// no run of 16
	// largest left: 8
}

func ExampleBitmap_Runs() {
	b := bitmap.New(1 << 20)
	b.SetRange(100, 199)
	b.Set(4096)
	b.SetRange(1<<19, 1<<20-1)
	for lo, hi := range b.Runs() {
		fmt.Println("taken", lo, hi)
	}
	for lo, hi := range b.ZeroRuns() {
		fmt.Println("free ", lo, hi)
	}
	// Output:
	// taken 100 199
	// taken 4096 4096
	// taken 524288 1048575
	// free  0 99
	// free  200 4095
	// free  4097 524287
}

// The set may change while it is gone through.
func ExampleBitmap_All() {
	b := bitmap.New(1000)
	b.SetRange(0, 9)
	b.SetRange(500, 509)
	for x := range b.All() {
		if x == 3 {
			b.ClearRange(501, 509)
		}
		b.Clear(x)
	}
	fmt.Println(b.Count(), b)
	// Output:
	// 0 [0, 999]:
}

// Ranks give every set ordinal a number, and back.
func ExampleBitmap_Select() {
	b := bitmap.New(100)
	for _, x := range []uint64{7, 30, 64, 99} {
		b.Set(x)
	}
	fmt.Println(b.Rank(64))
	fmt.Println(b.Select(2))
	fmt.Println(b.SelectClear(7))
	fmt.Println(b.Select(4))
	// Output:
	// 2
	// 64 true
	// 8 true
	// 0 false
}

// A batch in one call.
func ExampleBitmap_SetNextN() {
	b := bitmap.New(10)
	b.SetRange(4, 6)
	dst := make([]uint64, 5)
	n := b.SetNextN(dst, 8)
	fmt.Println(dst[:n])
	fmt.Println(b)
	// Output:
	// [8 9 0 1 2]
	// [0, 9]: 0-2 4-6 8-9
}

// A full set is a few bytes, whatever its size.
func ExampleBitmap_MarshalBinary() {
	b := bitmap.NewPow2(64)
	b.SetRange(0, 1<<63-1)
	data, err := b.MarshalBinary()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(data), "bytes")
	var back bitmap.Bitmap
	if err := back.UnmarshalBinary(data); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(back.Equal(b), back.Count())
	data[9] ^= 1
	fmt.Println(back.UnmarshalBinary(data) != nil, back.Equal(b))
	// Output:
	// 33 bytes
	// true 9223372036854775808
	// true true
}

// An IPv6 /64 by address: 2^64 ordinals, and the last one is as good as the first.
func ExampleNewPow2() {
	b := bitmap.NewPow2(64)
	last, _ := b.Last()
	b.Set(0)
	b.SetRange(last-9, last)
	fmt.Println(b.Count(), b.Full())
	fmt.Println(b.NextClear(0))
	fmt.Println(b.NextClear(last))
	b.SetRange(0, last)
	fmt.Println(b.Count() == last, b.Full()) // 2^64 does not fit a uint64: it saturates
	// Output:
	// 11 false
	// 1 true
	// 0 false
	// true true
}
