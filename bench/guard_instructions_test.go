package bench

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/internal/invariant"
)

// instructionsOf is the Go version that the bounds of instructions are for. Another compiler makes
// other code.
const instructionsOf = "go1.26"

// slack is how far a count may lie above the usual one, which two builds of one source reach
// within 0.5 %. A lock that is taken twice costs 3 % of a pair.
const slack = 1.02

// counted is a work whose instructions are counted. once is the number of operations that the
// difference of two runs is taken over, 1<<16 if it is 0.
type counted struct {
	name  string
	usual float64 // instructions of an operation, as counted when the row was set
	once  int
	open  func() side
}

// rowEnv has the test binary do one row for so many operations, and nothing else.
const rowEnv = "BENCH_ROW"

func TestMain(m *testing.M) {
	name, n, ok := strings.Cut(os.Getenv(rowEnv), " ")
	if !ok {
		os.Exit(m.Run())
	}
	times, err := strconv.Atoi(n)
	if err != nil {
		panic(err)
	}
	for _, row := range instructionRows {
		if row.name == name {
			row.open()(times)
			os.Exit(0)
		}
	}
	panic("no row " + name)
}

// oneRow is the name of the only row to count.
var oneRow = flag.String("row", "", "count the instructions of this row alone")

// TestGuardInstructions counts the instructions of each row with callgrind: no clock is in it, and
// code without a Step is seen. The cost of an operation is the difference of two runs, so the
// set-up is not in it.
func TestGuardInstructions(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	switch {
	case raced || invariant.Enabled || testing.CoverMode() != "":
		t.Skip("the bounds are for the plain build")
	case !*ratios:
		t.Skip("instructions are counted by make bench-guard")
	case err != nil:
		t.Skip("needs valgrind, a package of Debian")
	case !strings.HasPrefix(runtime.Version(), instructionsOf) || runtime.GOARCH != "amd64":
		t.Skipf("the bounds are for %s on amd64, and this is %s on %s", instructionsOf, runtime.Version(), runtime.GOARCH)
	}
	t.Setenv(statesEnv, t.TempDir())
	var group sync.WaitGroup
	tokens := make(chan struct{}, runtime.NumCPU())
	got := make([]costs, len(instructionRows))
	rows := instructionRows
	if *oneRow != "" {
		rows = slices.DeleteFunc(slices.Clone(rows), func(c counted) bool { return c.name != *oneRow })
	}
	for i, row := range rows {
		row.open() // makes the state that the counted processes restore
		group.Add(1)
		go func() {
			defer group.Done()
			tokens <- struct{}{}
			defer func() { <-tokens }()
			got[i] = costs{math.Inf(1), math.Inf(1)}
			for k := 0; k < 3 && (got[i].instructions > row.usual*slack || got[i].atomics > row.atomics()); k++ { // a busy machine adds some of the runtime's
				n, err := row.count(valgrind)
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = costs{min(got[i].instructions, n.instructions), min(got[i].atomics, n.atomics)}
			}
		}()
	}
	group.Wait()
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Logf("%.1f instructions, at most %.1f; %.2f atomic, at most %.1f", got[i].instructions, row.usual*slack, got[i].atomics, row.atomics())
			if got[i].instructions > row.usual*slack {
				t.Errorf("%.1f instructions, want at most %.1f", got[i].instructions, row.usual*slack)
			}
			if got[i].atomics > row.atomics() {
				t.Errorf("%.2f atomic instructions, want at most %.1f", got[i].atomics, row.atomics())
			}
		})
	}
}

// costs are the instructions of an operation, and how many of them are atomic: a mutex takes
// one to lock and one to unlock.
type costs struct{ instructions, atomics float64 }

// atomicsOf are the atomic instructions of an operation of the rows that lock.
var atomicsOf = map[string]float64{
	"pair/size=2^20/full=50": 4, "range/children=2^6": 4, "batch/work=pair": 0.1, "stats/size=2^20": 6,
	"registry/allocate/owners=10": 6, "registry/begin/owners=10": 18.8, "registry/move/owners=10": 5,
	"nodeipam/nodes=10": 4.5, "ipset/assign/release=handle": 26.5, "ipset/autoassign/release=address": 20.6,
	"prefixes/assign/release=owner": 19.9,
}

// atomics returns the bound of the row: a lock that is taken twice exceeds it by one.
func (c *counted) atomics() float64 {
	if n, ok := atomicsOf[c.name]; ok {
		return n + 1
	}
	return math.Inf(1)
}

// count returns the costs of one operation.
func (c *counted) count(valgrind string) (costs, error) {
	once := c.once
	if once == 0 {
		once = 1 << 16
	}
	few, err := c.run(valgrind, once/4)
	if err != nil {
		return costs{}, err
	}
	many, err := c.run(valgrind, once/4+once)
	n := float64(once)
	return costs{(many.instructions - few.instructions) / n, (many.atomics - few.atomics) / n}, err
}

// run returns the costs of a process that does the row n times.
func (c *counted) run(valgrind string, n int) (sum costs, err error) {
	binary, err := os.Executable()
	if err != nil {
		return sum, err
	}
	out := filepath.Join(os.Getenv(statesEnv), strings.NewReplacer("/", "_", "=", "-").Replace(fmt.Sprint(c.name, ".", n)))
	cmd := exec.Command(valgrind, "--tool=callgrind", "--collect-bus=yes", "--callgrind-out-file="+out, binary)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", rowEnv, c.name, n), "GOMAXPROCS=1", "GOGC=off",
		"GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off") // callgrind fails at the signals and, if old, at the instruction
	if text, err := cmd.CombinedOutput(); err != nil {
		return sum, fmt.Errorf("%s: %w\n%s", c.name, err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return sum, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if total, ok := strings.CutPrefix(lines.Text(), "totals: "); ok {
			_, err := fmt.Sscan(total, &sum.instructions, &sum.atomics)
			return sum, err
		}
	}
	return sum, fmt.Errorf("%s: callgrind printed no total", c.name)
}

// statesEnv names the directory of the states that a row restores. Without it each is made anew.
const statesEnv = "BENCH_STATES"

// kept returns what make returns, or what it returned to another process.
func kept(name string, make func() []byte) []byte {
	dir := os.Getenv(statesEnv)
	if dir == "" {
		return make()
	}
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		data = make()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			panic(err)
		}
	}
	return data
}
