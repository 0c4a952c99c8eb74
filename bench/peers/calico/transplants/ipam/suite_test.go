//go:build transplant

package ipam

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo"
	"github.com/onsi/ginkgo/config"
	"github.com/onsi/ginkgo/types"
	. "github.com/onsi/gomega"
	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/sirupsen/logrus"
)

func TestIpam(t *testing.T) {
	logrus.SetOutput(io.Discard)
	RegisterFailHandler(Fail)
	RunSpecsWithDefaultAndCustomReporters(t, "IPAM", []Reporter{outcomes{}})
}

// outcomes prints a line for each spec and one for its failure.
type outcomes struct{}

func (outcomes) SpecSuiteWillBegin(config.GinkgoConfigType, *types.SuiteSummary) {}
func (outcomes) BeforeSuiteDidRun(*types.SetupSummary)                           {}
func (outcomes) SpecWillRun(*types.SpecSummary)                                  {}
func (outcomes) AfterSuiteDidRun(*types.SetupSummary)                            {}
func (outcomes) SpecSuiteDidEnd(*types.SuiteSummary)                             {}

func (outcomes) SpecDidComplete(s *types.SpecSummary) {
	name := strings.Join(s.ComponentTexts[1:], "/")
	word := "fails"
	if s.Passed() {
		word = "passes"
	}
	f := s.Failure
	fmt.Printf("\nSPEC\t%s\t%s\t%s: %s\n", word, name, f.Location, strings.ReplaceAll(f.Message, "\n", " "))
}

// What the specs for Windows look into: the block that an address is in.
type (
	blockReaderWriter struct {
		client bapi.Client
		pools  PoolAccessorInterface
	}
	allocationBlock struct{ *model.AllocationBlock }
)

func (rw blockReaderWriter) getPoolForIP(ip cnet.IP, _ []v3.IPPool) (*v3.IPPool, error) {
	all, err := rw.pools.GetAllPools()
	for i, p := range all {
		if netip.MustParsePrefix(p.Spec.CIDR).Contains(address(ip)) {
			return &all[i], err
		}
	}
	return nil, err
}

func getBlockCIDRForAddress(ip cnet.IP, p *v3.IPPool) cnet.IPNet {
	return network(netip.PrefixFrom(address(ip), p.Spec.BlockSize).Masked())
}

func newBlock(cidr cnet.IPNet, _ *HostReservedAttr) allocationBlock {
	ones, size := cidr.Mask.Size()
	b := model.AllocationBlock{CIDR: cidr, Allocations: make([]*int, 1<<(size-ones))}
	for i := range b.Allocations {
		b.Unallocated = append(b.Unallocated, i)
	}
	return allocationBlock{&b}
}
