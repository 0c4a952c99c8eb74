package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCommit overwrites a record and guards another, puts a new one and deletes one: what an assignment and a release
// do, on a store of 100,000 records.
func BenchmarkCommit(b *testing.B) {
	ctx := context.Background()
	m := NewMemory()
	for i := range 100_000 {
		if _, err := m.Commit(ctx, []Op{{Kind: Put, Key: fmt.Sprintf("b%08d", i), Value: "v"}}); err != nil {
			b.Fatal(err)
		}
	}
	value := strings.Repeat("v", 100)
	b.ReportAllocs()
	for b.Loop() {
		rev, err := m.Commit(ctx, []Op{
			{Kind: Put, Key: "b00050000", Value: value, Expect: AnyRevision}, {Kind: Guard, Key: "b00070000", Expect: 70_001}, {Kind: Put, Key: "h00050000", Value: value},
		})
		if err == nil {
			_, err = m.Commit(ctx, []Op{{Kind: Put, Key: "b00050000", Value: value, Expect: rev}, {Kind: Delete, Key: "h00050000", Expect: rev}})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
