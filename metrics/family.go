package metrics

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// family is one metric: what README.md lists and what collectors send.
type family struct {
	name   string
	kind   kind
	help   string
	labels []string // after "allocator"
}

type kind string

const (
	gauge     kind = "gauge"
	counter   kind = "counter"
	histogram kind = "histogram"
)

// families are all metrics.
var families []*family

func define(name string, k kind, help string, labels ...string) *family {
	f := &family{name: "ipalloc_" + name, kind: k, help: help, labels: labels}
	families = append(families, f)
	return f
}

// series sends the families of one collector.
type series struct {
	descs map[*family]*prometheus.Desc
}

// newSeries returns the descriptions of families for the collector of that name. kind is the value of the label "kind", which
// the families of pools have first.
func newSeries(name, kind string, fs ...*family) series {
	return newSpaceSeries(name, kind, "", fs...)
}

// newSpaceSeries is newSeries for an engine of a space, which is the value of the label "space". Prometheus takes an empty
// label for none.
func newSpaceSeries(name, kind, space string, fs ...*family) series {
	s := series{make(map[*family]*prometheus.Desc)}
	for _, f := range fs {
		fixed, own := prometheus.Labels{"allocator": text(name)}, 0
		if len(f.labels) > 0 && f.labels[0] == "kind" && kind != "" {
			fixed["kind"], own = kind, 1
		}
		if len(f.labels) > own && f.labels[own] == "space" {
			fixed["space"] = space
			own++
		}
		s.descs[f] = prometheus.NewDesc(f.name, f.help, f.labels[own:], fixed)
	}
	return s
}

// Describe implements [prometheus.Collector].
func (s series) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d
	}
}

// send sends one value.
func (s series) send(out chan<- prometheus.Metric, f *family, v float64, labels ...string) {
	for i, l := range labels {
		labels[i] = text(l)
	}
	t := prometheus.GaugeValue
	if f.kind == counter {
		t = prometheus.CounterValue
	}
	m, err := prometheus.NewConstMetric(s.descs[f], t, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(s.descs[f], err)
	}
	out <- m
}

// text returns s as the value of a label, which must be valid UTF-8.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return fmt.Sprintf("%+q", s)
}

// table returns the list of all metrics, by name, as the Markdown table of README.md.
func table() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels beside `allocator` | meaning |\n|---|---|---|---|\n")
	byName := slices.SortedFunc(slices.Values(families), func(a, b *family) int { return strings.Compare(a.name, b.name) })
	for _, f := range byName {
		labels := strings.Join(f.labels, "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, labels, f.help)
	}
	return b.String()
}
