package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// ops returns n puts that expect a revision.
func ops(n int) []Op {
	var out []Op
	for i := range n {
		out = append(out, Op{Kind: Put, Key: fmt.Sprintf("k%03d", i), Value: "v", Expect: 0})
	}
	return out
}

// Malformed commits are refused whether keys are compared in pairs or in a map.
func TestCheckOps(t *testing.T) {
	for _, n := range []int{0, 1, pairwise - 1, pairwise, pairwise + 1, 200} {
		if err := CheckOps("p", ops(n), Limits{}); err != nil {
			t.Errorf("%d ops: %v", n, err)
		}
		for name, bad := range map[string]Op{
			"no key":       {Kind: Put},
			"twice":        {Kind: Put, Key: "k000"},
			"unknown kind": {Kind: Delete + 1, Key: "x"},
			"any guard":    {Kind: Guard, Key: "x", Expect: AnyRevision},
		} {
			err := CheckOps("p", append(ops(n), bad), Limits{})
			if name == "twice" && n == 0 {
				continue
			}
			var e *ipalloc.Error
			if !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != "ops" || e.Package != "p" {
				t.Errorf("%d ops and %s: %v", n, name, err)
			}
		}
	}
}

// Limits are exact: what is at the limit is accepted and one more is not. Puts and deletes count apart from expectations, and
// the value of a delete or a guard does not count.
func TestLimits(t *testing.T) {
	free := func(kind Kind, key, value string, expect uint64) Op {
		return Op{Kind: kind, Key: key, Value: value, Expect: expect}
	}
	for name, tt := range map[string]struct {
		limits   Limits
		fits, no []Op
	}{
		"writes": {Limits{Ops: 2}, []Op{free(Put, "a", "", AnyRevision), free(Delete, "b", "", AnyRevision), free(Guard, "c", "", 0), free(Guard, "d", "", 0)},
			[]Op{free(Put, "a", "", AnyRevision), free(Delete, "b", "", AnyRevision), free(Put, "c", "", AnyRevision)}},
		"expectations": {Limits{Ops: 2}, []Op{free(Put, "a", "", 1), free(Guard, "b", "", 1), free(Put, "c", "", AnyRevision)},
			[]Op{free(Put, "a", "", 1), free(Guard, "b", "", 1), free(Guard, "c", "", 1)}},
		"key":   {Limits{Key: 3}, []Op{free(Put, "abc", "", 0)}, []Op{free(Guard, "abcd", "", 0)}},
		"value": {Limits{Value: 3}, []Op{free(Put, "a", "123", 0), free(Delete, "b", "1234", 0)}, []Op{free(Put, "a", "1234", 0)}},
		"bytes": {Limits{Bytes: 6}, []Op{free(Put, "a", "123", 0), free(Delete, "b", "ignored", 0), free(Guard, "c", "ignored", 0)},
			[]Op{free(Put, "a", "1234", 0), free(Delete, "b", "", 0), free(Guard, "c", "", 0)}},
	} {
		if err := CheckOps("p", tt.fits, tt.limits); err != nil {
			t.Errorf("%s, at the limit: %v", name, err)
		}
		if err := CheckOps("p", tt.no, tt.limits); !errors.Is(err, ipalloc.ErrLimit) {
			t.Errorf("%s, one more: %v", name, err)
		}
	}
}

// A conflict names its record, also when it is wrapped; other errors name none.
func TestConflictKey(t *testing.T) {
	err := fmt.Errorf("outer: %w", Conflict("p", "key"))
	if key, ok := ConflictKey(err); key != "key" || !ok || !strings.Contains(err.Error(), `"key"`) {
		t.Errorf("%q, %v of %v", key, ok, err)
	}
	for _, err := range []error{nil, errors.New("x"), &ipalloc.Error{Name: "x", Err: ipalloc.ErrLimit}} {
		if _, ok := ConflictKey(err); ok {
			t.Errorf("%v names a record", err)
		}
	}
}

// A cause shows its kind and its error, and decides what is retryable; without one a conflict and a deadline are.
func TestCause(t *testing.T) {
	broken := errors.New("broken")
	unknown := &Cause{Kind: ipalloc.ErrUnknownOutcome, Err: broken, Retry: true}
	err := &ipalloc.Error{Package: "p", Op: "commit", Err: unknown}
	if !errors.Is(err, ipalloc.ErrUnknownOutcome) || !errors.Is(err, broken) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{err, true},
		{&Cause{Err: context.DeadlineExceeded}, false},
		{&Cause{Err: broken, Retry: true}, true},
		{Conflict("p", "k"), true},
		{context.DeadlineExceeded, true},
		{context.Canceled, false},
		{broken, false},
		{nil, false},
	} {
		if got := Retryable(tt.err); got != tt.want {
			t.Errorf("Retryable(%v) = %v", tt.err, got)
		}
	}
}
