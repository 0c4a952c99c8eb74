package promtest

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// sample is one value of a series.
type sample struct {
	t int64
	v float64
}

var _ chunks.Sample = sample{}

func (s sample) T() int64                    { return s.t }
func (s sample) F() float64                  { return s.v }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
