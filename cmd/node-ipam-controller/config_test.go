package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file sets what the command line does not, in the types of the flags.
func TestConfigFile(t *testing.T) {
	path := configFile(t, `# settings
allocate-node-cidrs: true
cluster-cidr: [10.0.0.0/16, "fd00::/48"]
service-cluster-ip-range: 10.96.0.0/16
node-cidr-mask-size-ipv4: 25
kube-api-qps: 7.5
leader-elect: false
leader-elect-retry-period: 3s
`)
	o, err := parseOptions([]string{"-config", path, "-node-cidr-mask-size-ipv4", "26"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !o.allocate || o.clusterCIDR != "10.0.0.0/16,fd00::/48" || o.serviceCIDRs != "10.96.0.0/16" || o.maskSizeIPv4 != 26 ||
		o.qps != 7.5 || o.leaderElect || o.retryPeriod != 3*time.Second || o.leaseDuration != 15*time.Second {
		t.Errorf("%+v", o)
	}
	if _, err = parseOptions([]string{"-config", configFile(t, ""), "-allocate-node-cidrs", "-cluster-cidr", "10.0.0.0/8"}, io.Discard); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// What a file cannot say is refused with the field.
func TestBadConfigFile(t *testing.T) {
	for text, want := range map[string]string{
		"\ncluster-cdir: 10.0.0.0/8":                         `unknown field "cluster-cdir"`,
		"dry-run: true":                                      `unknown field "dry-run"`,
		"config: x":                                          "unknown field \"config\"",
		"leader-elect: \"true\"":                             "leader-elect: true: want true or false",
		"leader-elect:":                                      "leader-elect: <nil>: want true or false",
		"node-cidr-mask-size: \"24\"":                        "node-cidr-mask-size: 24: want an integer",
		"node-cidr-mask-size: 2.5":                           "node-cidr-mask-size: 2.5: want an integer",
		"node-cidr-mask-size: 99999999999999999999":          "node-cidr-mask-size: 100000000000000000000: want an integer",
		"kube-api-qps: fast":                                 "kube-api-qps: fast: want a number",
		"leader-elect-retry-period: 2":                       ": want a duration",
		"leader-elect-retry-period: soon":                    ": want a duration",
		"cluster-cidr: 10":                                   ": want a string, or a list of strings",
		"cluster-cidr: {a: b}":                               ": want a string, or a list of strings",
		"cluster-cidr:\n- 10.0.0.0/8\n- [x]":                 "cluster-cidr: [10.0.0.0/8 [x]]: want a string, or a list of strings",
		"cluster-cidr: 10.0.0.0/8\ncluster-cidr: 10.0.0.0/9": `line 2: key "cluster-cidr" already set`,
		"cluster-cidr: 10.0.0.0/8\n---\nv: 1":                "want one document",
		"- cluster-cidr":                                     "want a mapping of fields",
		"v: &a [*a]\nkube-api-burst: 1":                      "contains itself",
		"\tx":                                                "yaml: ",
		strings.Repeat("#", maxFile+1):                       "more than 4194304 bytes",
	} {
		_, err := parseOptions([]string{"-allocate-node-cidrs", "-config", configFile(t, text)}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: %v, want %s", text, err, want)
		}
	}
	if _, err := parseOptions([]string{"-config", filepath.Join(t.TempDir(), "none")}, io.Discard); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	// A field that the command line overrides is read all the same.
	if _, err := parseOptions([]string{"-leader-elect", "-config", configFile(t, "leader-elect: 5")}, io.Discard); err == nil {
		t.Error("a bad value is not refused")
	}
}
