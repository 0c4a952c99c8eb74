package report

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// tick is the unit of /proc/stat.
const tick = 10 * time.Millisecond

// MachineTime returns the CPU time that all programs of the machine have used, or
// had stolen by a hypervisor; 0 if the machine does not say.
func MachineTime() time.Duration {
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

// CPUModel returns the name of the processor.
func CPUModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Commit returns the commit that is checked out in the working directory, with a
// "+" if files differ from it.
func Commit() string {
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

// Versions returns the versions of the peers in this build, by module path.
func Versions(paths ...string) []string {
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
