package main

import (
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// The crowd: so many callers of one host, each of which asks for so many addresses, in blocks of 16.
const (
	crowdCallers   = 256
	crowdEach      = 10
	crowdBlockBits = 28
)

// crowd counts what goes wrong when many callers of one host ask at once in a pool with room for all.
func crowd(o frame.Options, each int, log io.Writer) []frame.Fact {
	runtime.GOMAXPROCS(o.Procs)
	begin := time.Now()
	want := crowdCallers * each
	least := want / (1 << (32 - crowdBlockBits))
	title := fmt.Sprintf("%d callers of one host, %d addresses each, blocks of 16: ", crowdCallers, each)
	errors := fact("crowd/errors", title+"calls that failed", report.Whole)
	blocks := fact("crowd/blocks", title+fmt.Sprintf("blocks used, %d are needed", least), report.Whole)
	extra := fact("crowd/extra", title+"blocks beyond those", report.Whole)
	note := func(who string, assign func(handle string) bool, used func() int) {
		var failed atomic.Int64
		frame.Together(crowdCallers, func(i int) {
			for j := range each {
				if !assign(handleName(i*each + j)) {
					failed.Add(1)
				}
			}
		})
		errors.Values[who], blocks.Values[who] = float64(failed.Load()), float64(used())
		extra.Values[who] = max(0, blocks.Values[who]-float64(least))
	}

	pool := netip.PrefixFrom(wholeNet.Addr(), 16)
	e := must(ipset.New(store.NewMemory(), ipset.Options{}))
	check(e.Operator().SetConfig(bg, alloc.Config{}))
	check(e.AddPool(bg, alloc.Pool{Name: "pool", Prefix: pool, BlockBits: crowdBlockBits}))
	note(ours, func(handle string) bool {
		got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("host"), Num4: 1, Handle: handle, Use: alloc.Workload})
		return err == nil && len(got.V4) == 1
	}, func() int { return len(must(e.BlocksOf(bg, alloc.HostOwner("host")))) })

	b := newBackend()
	client := must(newCalico(b, []v3.IPPool{calicoPool("pool", pool.String(), crowdBlockBits)}, "host"))
	note(theirs, func(handle string) bool {
		got, _, err := client.AutoAssign(bg, ipam.AutoAssignArgs{
			Num4: 1, HandleID: &handle, Hostname: "host", IntendedUse: v3.IPPoolAllowedUseWorkload, MaxBlocksPerHost: want,
		})
		return err == nil && len(got.IPs) == 1
	}, func() int { return len(must(b.List(bg, model.BlockListOptions{}, "")).KVPairs) })
	fmt.Fprintf(log, "%6.1fs  crowd\n", time.Since(begin).Seconds())
	return []frame.Fact{errors, blocks, extra}
}
