package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	return parseOptions(append([]string{"-allocate-node-cidrs"}, args...), io.Discard)
}

func TestRangeConfig(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // slots and reservations, or the error
	}{
		{"--cluster-cidr=10.0.0.0/16", "[{24 [10.0.0.0/16]}] []"},
		{"--cluster-cidr=10.0.7.0/16", "[{24 [10.0.0.0/16]}] []"},                                                          // masked, as the original does
		{"--cluster-cidr=010.000.0.0/16 --service-cluster-ip-range=10.96.000.0/12", "[{24 [10.0.0.0/16]}] [10.96.0.0/12]"}, // decimal
		{"--cluster-cidr=fd00::/48", "[{64 [fd00::/48]}] []"},
		{"--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=26", "[{26 [10.0.0.0/16]}] []"},
		{"--cluster-cidr=fd00::/48,10.0.0.0/16 --node-cidr-mask-size-ipv4=25 --node-cidr-mask-size-ipv6=80", "[{80 [fd00::/48]} {25 [10.0.0.0/16]}] []"},
		{"--cluster-cidr=10.0.0.0/16,fd00::/48,10.8.0.0/16", "[{24 [10.0.0.0/16 10.8.0.0/16]} {64 [fd00::/48]}] []"},
		{"--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.0.0.0/24,fd00::/108", "[{24 [10.0.0.0/16]}] [10.0.0.0/24 fd00::/108]"},
		{"--cluster-cidr=10.0.0.0", `-cluster-cidr: "10.0.0.0" is no CIDR`},
		{"--cluster-cidr=10.0.0.0/16,", `-cluster-cidr: "" is no CIDR`},
		{"--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=x", `-service-cluster-ip-range: "x" is no CIDR`},
		{"--cluster-cidr=10.0.0.0/16,fd00::/48 --node-cidr-mask-size=24", "-node-cidr-mask-size is for one family; with two, use -node-cidr-mask-size-ipv4 and -ipv6"},
		{"--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24", "-node-cidr-mask-size goes without -node-cidr-mask-size-ipv4 and -ipv6"},
		{"--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv6=64", "-node-cidr-mask-size-ipv6 without a CIDR of that family"},
	} {
		o, err := parse(t, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		fixed, err := prefixes("service-cluster-ip-range", o.serviceCIDRs)
		config := nodeipam.Config{}
		if err == nil {
			config, err = o.rangeConfig(fixed)
		}
		got := fmt.Sprint(config.Slots, config.Reserved)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.args, got, c.want)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"": "RangeAllocator needs -cluster-cidr",
		"-cidr-allocator-type MultiCIDRRangeAllocator -node-cidr-mask-size-ipv6 64": "-node-cidr-mask-size, ",
		"-cluster-cidr 10.0.0.0/8 x":                     `unexpected argument "x"`,
		"-allocate-node-cidrs=false -cluster-cidr x":     "nothing to do without -allocate-node-cidrs",
		"-cluster-cidr x -cluster-cidrs-sync-period 0s":  "-cluster-cidrs-sync-period: want more than 0",
		"-cidr-allocator-type Cloud -cluster-cidr x":     `-cidr-allocator-type "Cloud": want RangeAllocator`,
		"-cluster-cidr x -families IPv4":                 "-families is for MultiCIDRRangeAllocator",
		"-cluster-cidr x -concurrent-node-syncs 0":       "-concurrent-node-syncs: want 1 or more",
		"-cluster-cidr x -leader-elect-lease-duration x": "invalid value",
	} {
		if _, err := parse(t, strings.Fields(args)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// The least value of an option is one.
func TestLeastOptions(t *testing.T) {
	for name, least := range map[string]bool{"0": false, "1": true} {
		for _, option := range []string{"-concurrent-node-syncs", "-kube-api-burst"} {
			if _, err := parse(t, labelledRun(option, name)...); (err == nil) != least {
				t.Errorf("%s %s: %v", option, name, err)
			}
		}
	}
}
