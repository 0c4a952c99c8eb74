package wire

import (
	"math"
	"time"
)

// Stamp turns a time into nanoseconds since 1970; the zero time is 0. Records keep only times above 0. An earlier time is stored as
// the first nanosecond of 1970, and a time that does not fit into 64 bits as the last that fits.
func Stamp(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case !t.After(time.Unix(0, 1)):
		return 1
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Seconds returns a time in nanoseconds since 1970 as it is kept with an address: from 1 to the year 2106.
func Seconds(at int64) uint32 { return uint32(min(max(at/int64(time.Second), 1), math.MaxUint32)) }

// UnstampSeconds turns seconds since 1970 into a UTC time; 0 is the zero time.
func UnstampSeconds(s uint32) time.Time { return Unstamp(int64(s) * int64(time.Second)) }

// Unstamp turns nanoseconds since 1970 into a UTC time; 0 is the zero time.
func Unstamp(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
