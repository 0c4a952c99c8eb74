package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// start is the origin of wall times.
var start = time.Now()

// provenance says what a table was measured with.
func provenance(args []string, r *runner) string {
	s := fmt.Sprintf("Medians of %d interleaved passes on %s, %d of %d cores, %s, GOAMD64=%s; `%s` in bench/peers at commit %s; %s.",
		r.passes, report.CPUModel(), r.procs, runtime.NumCPU(), runtime.Version(), goamd64(),
		strings.Join(append([]string{"GOWORK=off go run ."}, args...), " "), report.Commit(),
		strings.Join(report.Versions("k8s.io/kubernetes", "github.com/cilium/cilium", "github.com/bits-and-blooms/bitset",
			"github.com/RoaringBitmap/roaring/v2"), ", "))
	if r.windows > 0 {
		s += fmt.Sprintf(" Other programs disturbed %d of %d windows on several goroutines.", r.troubled, r.windows)
	}
	return s
}

func goamd64() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GOAMD64" {
				return s.Value
			}
		}
	}
	return "none"
}
