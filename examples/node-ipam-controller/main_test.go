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
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/24 -node-cidr-mask-size 20", 2, "/20 is not from /24 to /32"},
		{"-allocate-node-cidrs -cluster-cidrs /nowhere/entries.yaml", 2, "no such file"},
		{"-allocate-node-cidrs -cluster-cidr 10.0.0.0/8 -kubeconfig /nowhere/config", 1, "no such file"},
	} {
		var out strings.Builder
		if code := run(t.Context(), strings.Fields(c.args), &out, &out); code != c.code || !strings.Contains(out.String(), c.log) {
			t.Errorf("%s: code %d, output %s", c.args, code, out.String())
		}
	}
}
