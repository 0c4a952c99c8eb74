package rangealloc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

// What kubectl get servicecidrs -o json and kubectl get ipaddresses -o json print of a cluster, shortened.
const (
	cidrsOfCluster = `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[
 {"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"kubernetes","uid":"1"},"spec":{"cidrs":["10.96.0.0/24","fd00::/112"]},"status":{"conditions":[{"type":"Ready","status":"True","reason":""}]}},
 {"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"old","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidrs":["10.97.0.0/24"]}}]}`
	addressesOfCluster = `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[
 {"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"10.96.0.1"},"spec":{"parentRef":{"group":"","name":"kubernetes","namespace":"default","resource":"services"}}},
 {"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"10.96.0.20"},"spec":{"parentRef":{"group":"","name":"dns","namespace":"kube-system","resource":"services"}}},
 {"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"fd00::a"},"spec":{"parentRef":{"group":"","name":"dns","namespace":"kube-system","resource":"services"}}},
 {"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"10.96.0.30"},"spec":{"parentRef":{"group":"gateway.networking.k8s.io","name":"g","namespace":"a","resource":"gateways"}}}]}`
)

// The lists of a cluster are compared with a registry that a snapshot has restored.
func TestListsAreCompared(t *testing.T) {
	ranges, grants, err := Lists([]byte(cidrsOfCluster), []byte(addressesOfCluster))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(ranges); got != "[{kubernetes [10.96.0.0/24 fd00::/112] false false []} {old [10.97.0.0/24] true false []}]" {
		t.Error(got)
	}
	reg := must(servicealloc.NewRegistry(servicealloc.PortRange{}))
	for _, r := range ranges {
		if err := reg.SetRange(r); err != nil {
			t.Fatal(err)
		}
	}
	if problems := reg.Load(grants); len(problems) > 0 {
		t.Fatal(problems[0])
	}
	reg = must(servicealloc.NewRegistry(servicealloc.PortRange{}, servicealloc.Restore(must(reg.MarshalBinary()))))
	now := time.Unix(0, 0)
	if found := repair.Diff(reg, grants, nil, now); len(found) > 0 {
		t.Error(found[0])
	}
	if got := fmt.Sprint(reg.Ranges()); got != fmt.Sprint(ranges) {
		t.Error(got)
	}
	must(reg.Release("kube-system/dns", 0))
	must(reg.Allocate("a/leaked", servicealloc.Request{Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.99")}}))
	var found []string
	for _, f := range repair.Diff(reg, grants, nil, now) {
		found = append(found, fmt.Sprint(f.Kind, " ", f.Addr, " ", f.Owner))
	}
	if got := strings.Join(found, "; "); !strings.Contains(got, "missing 10.96.0.20 kube-system/dns") || !strings.Contains(got, "missing fd00::a kube-system/dns") || !strings.Contains(got, "leaked 10.96.0.99 a/leaked") || len(found) != 3 {
		t.Error(got)
	}
}

func TestListsAreWhole(t *testing.T) {
	for what, change := range map[string][2]string{
		"a page": {`"resourceVersion":""`, `"continue":"x"`}, "another kind": {`"IPAddress"`, `"Pod"`}, "a range of another kind": {`"ServiceCIDR"`, `"IPPool"`}, "a name": {`"10.96.0.20"`, `"web"`},
		"twice": {`"10.96.0.20"`, `"10.96.0.1"`}, "no owner": {`"name":"dns"`, `"name":""`}, "a prefix": {"10.97.0.0/24", "10.97.0/24"}, "no JSON": {"{", "<"},
	} {
		_, _, err := Lists([]byte(strings.ReplaceAll(cidrsOfCluster, change[0], change[1])), []byte(strings.ReplaceAll(addressesOfCluster, change[0], change[1])))
		if err == nil {
			t.Error(what)
			continue
		}
		wantErr(t, err, ipalloc.ErrInvalid)
	}
}
