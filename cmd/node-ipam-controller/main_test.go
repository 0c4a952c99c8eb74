package main

import (
	"os"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
	}
	klog.SetLogger(klog.Logger{}) // client-go is told a lot of failures here, and says so
	os.Exit(m.Run())
}

func TestExitCodes(t *testing.T) {
	defer klog.SetLogger(klog.Logger{})
	for _, c := range []struct {
		args string
		code int
		log  string
	}{
		{"-h", 0, "-cluster-cidr"},
		{"", 2, "nothing to do"},
		{"-version", 0, "node-ipam-controller "},
		{"-allocate-node-cidrs -log-format xml -cluster-cidr 10.0.0.0/8", 2, "want text or json"},
		{"-allocate-node-cidrs -log-format json -cluster-cidr x", 2, `"level":"ERROR"`},
		{"-explain n -cluster-cidr 10.0.0.0/8", 2, "-explain is for MultiCIDRRangeAllocator"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/24 -node-cidr-mask-size 20", 2, "-node-cidr-mask-size: nodeipam: "},
		{"-allocate-node-cidrs -cluster-cidr fd00::/48,10.0.0.0/24 -node-cidr-mask-size-ipv4 20", 2, "-node-cidr-mask-size-ipv4: nodeipam: "},
		{"-allocate-node-cidrs -cluster-cidr fd00::/48,10.0.0.0/24 -node-cidr-mask-size-ipv6 20", 2, "-node-cidr-mask-size-ipv6: nodeipam: "},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/25", 2, "-node-cidr-mask-size-ipv4: nodeipam: "},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/16,10.0.0.0/17", 2, "-cluster-cidr: nodeipam: "},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -kubeconfig /nowhere/config", 2, "no such file"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -http-address :99999", 2, "-http-address"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -leader-elect-lease-duration 5s", 2, "-leader-elect-lease-duration: want more than"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -leader-elect-lease-duration 10s", 2, "-leader-elect-lease-duration: want more than"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -leader-elect-retry-period 0s", 2, "-leader-elect-retry-period: want more than 0"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -leader-elect-retry-period 9s", 2, "-leader-elect-renew-deadline: want more than"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -kube-api-qps -1", 2, "want more than 0"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -kube-api-qps 0", 2, "want more than 0"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -kube-api-burst 0", 2, "want more than 0"},
	} {
		var out strings.Builder
		if code := run(t.Context(), strings.Fields(c.args), &out, &out); code != c.code || !strings.Contains(out.String(), c.log) {
			t.Errorf("%s: code %d, output %s", c.args, code, out.String())
		}
	}
}
