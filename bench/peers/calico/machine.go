package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/internal/etcdtest"
)

// start is the origin of wall times.
var start = time.Now()

// tick is the unit of /proc/stat.
const tick = 10 * time.Millisecond

// machineTime returns the CPU time that all programs of the machine have used, or had stolen by a hypervisor; 0 if the
// machine does not say.
func machineTime() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var user, nice, system, idle, wait, irq, softirq, steal int64
	n, _ := fmt.Sscanf(string(line), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal)
	if n < 8 {
		return 0
	}
	return time.Duration(user+nice+system+irq+softirq+steal) * tick
}

// cpuModel returns the name of the processor.
func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// commit returns the commit that is checked out in the working directory, with a "+" if files differ from it.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	id := strings.TrimSpace(string(out))
	// The files that hold the tables change with every run and do not count.
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":!/bench/peers/README.md", ":!/bench/peers/calico/README.md").Run() != nil {
		id += "+"
	}
	return id
}

// versions returns the versions of modules in this build, by path.
func versions(paths ...string) []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var list []string
	for _, path := range paths {
		for _, m := range info.Deps {
			if m.Path == path {
				list = append(list, path+" "+m.Version)
			}
		}
	}
	return list
}

// provenance says what the tables were measured with.
func provenance(args []string, r *runner, etcd bool) string {
	s := fmt.Sprintf("Medians of %d interleaved passes on %s; one caller on memory: CPU time of the process on one core, all else: wall time on %d of %d cores; %s; `%s` in bench/peers/calico at commit %s; %s.",
		r.passes, cpuModel(), r.procs, runtime.NumCPU(), runtime.Version(),
		strings.Join(append([]string{"GOWORK=off go run ."}, args...), " "), commit(),
		strings.Join(versions("github.com/projectcalico/calico", "go.etcd.io/etcd/client/v3"), ", "))
	if etcd {
		s += " The etcd is " + etcdtest.Version + ", one member on this machine that syncs every write to its disk."
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
