package model_test

import (
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/model"
)

func TestTraceReadsWhatAppendOpWrote(t *testing.T) {
	operands := []uint64{0, 1, 127, 128, 16383, 16384, 1<<32 - 1, 1 << 63, 1<<64 - 1}
	var data []byte
	for op := range byte(7) {
		data = model.AppendOp(data, op, operands...)
	}
	tr := model.NewTrace(data)
	for op := range 7 {
		if !tr.More() {
			t.Fatalf("the trace ends before op %d", op)
		}
		if got := tr.Op(7); got != op {
			t.Fatalf("op %d reads as %d", op, got)
		}
		for i, want := range operands {
			if got := tr.Uint(); got != want {
				t.Fatalf("operand %d of op %d reads as %d, want %d", i, op, got, want)
			}
		}
	}
	if tr.More() {
		t.Fatal("the trace goes on after its end")
	}
}

// Every byte string is a trace: what is not there reads as 0, and each read takes
// something, so that a replay ends.
func TestTraceOfAnyBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		op   int    // of 10
		v, w uint64 // the operands after it
		more bool   // whether anything is left then
	}{
		{"nothing", nil, 0, 0, 0, false},
		{"op only", []byte{23}, 3, 0, 0, false},
		{"cut operand", []byte{1, 0x80}, 1, 0, 0, false},
		{"operand of 11 bytes", []byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 7}, 1, 0, 0, false},
		{"operand above 64 bits", []byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 7}, 1, 0, 0, false},
		{"one operand", []byte{9, 5}, 9, 5, 0, false},
		{"and another op", []byte{9, 5, 6, 7}, 9, 5, 6, true},
	} {
		tr := model.NewTrace(c.data)
		op, v, w := tr.Op(10), tr.Uint(), tr.Uint()
		if op != c.op || v != c.v || w != c.w || tr.More() != c.more {
			t.Errorf("%s: op %d, %d, %d, more %v; want op %d, %d, %d, more %v", c.name, op, v, w, tr.More(), c.op, c.v, c.w, c.more)
		}
	}
}
