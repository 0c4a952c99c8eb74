package transplants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/bench/internal/transplant"
)

var write = flag.Bool("write", false, "write the results into README.md")

func TestTransplants(t *testing.T) { transplant.Run(t, suites, *write) }

const (
	calico = "github.com/projectcalico/calico"
	lib    = calico + "/libcalico-go/lib/"
	here   = "github.com/ipalloc/ipalloc/bench/peers/calico/transplants/"

	ends  = "addresses are reserved for a host only with strict affinity: others would borrow from a network that is not theirs"
	first = "a host's search for its first block begins where its name says, with Calico at the pool's first one"

	internals = "calls internals of the client"
)

var suites = []*transplant.Suite{{
	Name: "Calico IPAM: client, Windows", Adapter: "ipam", Module: calico, Dir: "libcalico-go/lib/ipam",
	Tests: []string{"ipam_test.go", "ipam_win_test.go"}, With: []string{"interface.go", "ipam.go", "ipam_types.go", "pools.go"},
	Keep: map[string][]string{"ipam.go": {
		"IPReservationInterface", "IPAMAssignments", "IPAMAssignments.AddMsg", "IPAMAssignments.PartialFulfillmentError", "ErrUseRequired",
		"decideHostname", "ipamClient.AutoAssign", "ipamClient.EnsureBlock",
	}},
	Import: map[string]string{lib + "backend": here + "backend", lib + "backend/k8s": here + "k8s", lib + "testutils": here + "testutils"},
	Args:   []string{"-ginkgo.seed=1"}, // the order of the containers
	Read:   specs,
	Cut: map[string]string{
		"IPAM findOrClaimBlock test":        internals,
		"determinePools tests IPV4":         internals,
		"determinePools tests IPV6":         internals,
		"Measuring allocation performance":  "measures time",
		"IPAMAssignmentInfo.String() tests": "compares the texts of messages",
	},
	Differ: map[string]string{
		"IPAM tests/ReleaseIPs test/should handle when an IP is released and reallocated with the same handle":                                                            "a release and an assignment move the sequence number of an address by one, with Calico by two",
		"IPAM tests/Reservation tests/with reservations/should deal with IPReservations and Windows reservations":                                                         ends,
		"IPAM tests/IPAM EnsureBlock from different pools - multi/should allocate a block with no required pool specified":                                                ends,
		"IPAM tests/IPAM EnsureBlock from different pools - multi/should allocate a block from the first requested pool when two valid pools are requested":               ends,
		"IPAM tests/IPAM EnsureBlock from different pools - multi/should return existing block after calling EnsureBlock again":                                           ends,
		"IPAM tests/IPAM EnsureBlock from different pools - multi/should fail to allocate a block when requesting an invalid pool which does not satisfy HostReserveAttr": ends,
		"IPAM tests/IPAM AutoAssign from different pools/should get an IP from pool1 when explicitly requesting from that pool":                                           first,
		"IPAM tests/IPAM AutoAssign from different pools/should get an IP from pool2 when explicitly requesting from that pool":                                           first,
	},
}}

// specs reads the lines that the adapter's suite prints for each spec.
func specs(t testing.TB, output []byte) (list []transplant.Outcome) {
	var text strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct{ Action, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("go test says %q", lines.Bytes())
		}
		if e.Action == "output" || e.Action == "build-output" {
			text.WriteString(e.Output)
		}
	}
	for line := range strings.Lines(text.String()) {
		if f := strings.SplitN(strings.TrimSpace(line), "\t", 4); len(f) == 4 && f[0] == "SPEC" {
			list = append(list, transplant.Outcome{Test: f[2], Passed: f[1] == "passes", Log: f[3]})
		}
	}
	if len(list) == 0 {
		t.Fatal(text.String())
	}
	return list
}
