// Package callgrind counts the instructions of a process with valgrind. No clock is in a count, so other programs of the machine
// hardly change it.
package callgrind

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
)

// Costs are the instructions of a process or of an operation, and how many of them are atomic: a
// mutex takes one to lock and one to unlock.
type Costs struct{ Instructions, Atomics float64 }

// Each returns the costs of one operation. It runs this program in an environment in which the program calls [Begin], does n operations and
// ends. So the set-up is not in the count: the seeds of maps alone change that by millions of instructions. out is a file that the run may
// overwrite.
func Each(n int, out string, env ...string) (Costs, error) {
	sum, err := run(out, env)
	return Costs{sum.Instructions / float64(n), sum.Atomics / float64(n)}, err
}

// run returns the costs of this program in an environment.
func run(out string, env []string) (sum Costs, err error) {
	binary, err := os.Executable()
	if err != nil {
		return sum, err
	}
	cmd := exec.Command("valgrind", "--tool=callgrind", "--collect-bus=yes", "--callgrind-out-file="+out, binary)
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=1", "GOGC=off",
		"GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off"), env...) // callgrind fails at the signals and, if old, at the instruction
	if text, err := cmd.CombinedOutput(); err != nil {
		return sum, fmt.Errorf("%q: %w\n%s", env, err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return sum, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if total, ok := bytes.CutPrefix(lines.Bytes(), []byte("totals: ")); ok {
			_, err := fmt.Sscan(string(total), &sum.Instructions, &sum.Atomics)
			return sum, err
		}
	}
	return sum, fmt.Errorf("%q: callgrind printed no total", env)
}
