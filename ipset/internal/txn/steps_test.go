package txn

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// A commit takes as many operations as the smallest of its bounds admits beside those that it has, all without one, and at least one.
func TestFitting(t *testing.T) {
	ops := make([]store.Op, 10)
	for i := range ops {
		ops[i] = store.Op{Key: "key", Value: "value12"} // ten bytes
	}
	for _, tt := range []struct {
		limits store.Limits
		most   int
		beside int
		want   int
	}{
		{store.Limits{}, 100, 1, 10}, {store.Limits{}, 11, 1, 10}, {store.Limits{}, 10, 1, 9}, {store.Limits{}, 4, 0, 4},
		{store.Limits{Ops: 7}, 100, 2, 5}, {store.Limits{Ops: 7}, 3, 2, 1}, {store.Limits{Ops: 2}, 100, 5, 1},
		{store.Limits{Bytes: 50}, 100, 1, 4}, {store.Limits{Bytes: 49}, 100, 1, 3}, {store.Limits{Bytes: 5}, 100, 0, 1},
		{store.Limits{Bytes: 1000}, 100, 1, 10},
	} {
		if got := Fitting(tt.limits, tt.most, ops, ops[:tt.beside]...); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
	if got := Fitting(store.Limits{Ops: 1}, 0, nil); got != 0 {
		t.Errorf("%d of none", got)
	}
}
