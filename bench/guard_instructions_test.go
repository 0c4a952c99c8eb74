package bench

import (
	"cmp"
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

	"github.com/ipalloc/ipalloc/bench/internal/callgrind"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// instructionsOf is the Go version that the bounds of instructions are for. Another compiler makes
// other code.
const instructionsOf = "go1.26"

// slack is how far a count may lie above the usual one, which two builds of one source reach
// within 0.5 %. A lock that is taken twice costs 3 % of a pair.
const slack = 1.02

// counted is a work whose instructions are counted. once is the number of operations that are
// counted, 1<<16 if it is 0.
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
			do := row.open()
			do(times / 4) // fills caches
			callgrind.Begin()
			do(times)
			os.Exit(0)
		}
	}
	panic("no row " + name)
}

// oneRow is the name of the only row to count.
var oneRow = flag.String("row", "", "count the instructions of this row alone")

// TestGuardInstructions counts the instructions of each row with callgrind: no clock is in it, and
// code without a Step is seen. The set-up is not in it.
func TestGuardInstructions(t *testing.T) {
	_, err := exec.LookPath("valgrind")
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
	got := make([]callgrind.Costs, len(instructionRows))
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
			got[i] = callgrind.Costs{Instructions: math.Inf(1), Atomics: math.Inf(1)}
			for k := 0; k < 3 && (got[i].Instructions > row.usual*slack || got[i].Atomics > row.atomics()); k++ { // a busy machine adds some of the runtime's
				n, err := row.count()
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = callgrind.Costs{Instructions: min(got[i].Instructions, n.Instructions), Atomics: min(got[i].Atomics, n.Atomics)}
			}
		}()
	}
	group.Wait()
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Logf("%.1f instructions, at most %.1f; %.2f atomic, at most %.1f", got[i].Instructions, row.usual*slack, got[i].Atomics, row.atomics())
			if got[i].Instructions > row.usual*slack {
				t.Errorf("%.1f instructions, want at most %.1f", got[i].Instructions, row.usual*slack)
			}
			if got[i].Atomics > row.atomics() {
				t.Errorf("%.2f atomic instructions, want at most %.1f", got[i].Atomics, row.atomics())
			}
		})
	}
}

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
func (c *counted) count() (callgrind.Costs, error) {
	out := filepath.Join(os.Getenv(statesEnv), strings.NewReplacer("/", "_", "=", "-").Replace(c.name)+".callgrind")
	n := cmp.Or(c.once, 1<<16)
	return callgrind.Each(n, out, fmt.Sprintf("%s=%s %d", rowEnv, c.name, n))
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
