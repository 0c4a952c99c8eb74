package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"

	"github.com/ipalloc/ipalloc/bench/internal/report"
)

// start is the origin of wall times.
var start = time.Now()

// provenance says what the tables were measured with.
func provenance(args []string, r *runner, etcd bool) string {
	s := fmt.Sprintf("Medians of %d interleaved passes on %s; one caller on memory: CPU time of the process on one core, all else: wall time on %d of %d cores; %s; `%s` in bench/peers/calico at commit %s; %s.",
		r.passes, report.CPUModel(), r.procs, runtime.NumCPU(), runtime.Version(),
		strings.Join(append([]string{"GOWORK=off go run ."}, args...), " "), report.Commit(),
		strings.Join(report.Versions("github.com/projectcalico/calico", "go.etcd.io/etcd/client/v3"), ", "))
	if etcd {
		s += " The etcd is " + servers.EtcdVersion + ", one member on this machine that syncs every write to its disk."
	}
	if r.windows > 0 {
		s += fmt.Sprintf(" Other programs disturbed %d of %d windows of wall time.", r.troubled, r.windows)
	}
	return s
}

// liveHeap returns the bytes of the objects that are reachable.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep, and what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
