package model

import "encoding/binary"

// Trace reads a byte string as a sequence of operations: an op byte, then the
// operands of that operation as uvarints. Every byte string is a trace, so a
// fuzzer can mutate traces freely. Operands beyond the end are 0, and the caller
// reduces operands to the range that it needs.
type Trace struct{ data []byte }

// NewTrace returns a trace of data.
func NewTrace(data []byte) *Trace { return &Trace{data} }

// More reports whether another operation follows.
func (t *Trace) More() bool { return len(t.data) > 0 }

// Op returns the next op byte modulo n.
func (t *Trace) Op(n int) int {
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return int(b) % n
}

// Uint returns the next operand.
func (t *Trace) Uint() uint64 {
	v, n := binary.Uvarint(t.data)
	if n <= 0 {
		n = len(t.data) // cut short or too long: the trace ends here
	}
	t.data = t.data[n:]
	return v
}

// Below returns the next operand modulo n; 0 if n is 0.
func (t *Trace) Below(n uint64) uint64 {
	v := t.Uint()
	if n == 0 {
		return 0
	}
	return v % n
}

// AppendOp appends an operation to a trace, the inverse of Op and Uint.
func AppendOp(data []byte, op byte, operands ...uint64) []byte {
	data = append(data, op)
	for _, v := range operands {
		data = binary.AppendUvarint(data, v)
	}
	return data
}
