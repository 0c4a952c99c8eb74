package main

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var update = flag.Bool("update", false, "write the golden files and the answers in README.md")

// sequence is what depends on the release in an answer.
var sequence = regexp.MustCompile(`(sequence"?:? +)\d+`)

// transcript runs commands on a store and compares what they print with a golden file. Lines are
// commands as in a shell, without quotes.
func transcript(t *testing.T, golden string, env map[string]string, lines ...string) {
	t.Helper()
	var out strings.Builder
	for _, line := range lines {
		status, stdout, stderr := call(t, env, strings.Fields(line)...)
		fmt.Fprintf(&out, "$ ipamctl %s\n%s", line, sequence.ReplaceAllString(stdout, "${1}N"))
		for _, l := range strings.SplitAfter(stderr, "\n") {
			if l != "" {
				out.WriteString("! " + l)
			}
		}
		if status != 0 {
			fmt.Fprintf(&out, "status %d\n", status)
		}
	}
	text := out.String()
	if env["dir"] != "" {
		text = strings.ReplaceAll(text, env["dir"], "DIR")
	}
	compare(t, golden, text)
}

// compare compares with a golden file, or writes it with -update.
func compare(t *testing.T, golden, got string) {
	t.Helper()
	name := filepath.Join("testdata", golden)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("%s:%d\n%s\nwant\n%s", name, i+1, strings.Join(g[max(0, i-2):min(len(g), i+8)], "\n"), w[i])
			}
		}
		t.Fatalf("%s: %d lines, want %d", name, len(g), len(w))
	}
}

func TestShow(t *testing.T) {
	name := newBolt(t, cluster(t))
	transcript(t, "show.txt", map[string]string{"IPAMCTL_STORE": name, "dir": filepath.Dir(strings.TrimPrefix(name, "bolt://"))},
		"pool list", "pool list --sort use -o name", "pool list -o csv", "pool list -o json", "pool show pods", "pool show lb -o yaml",
		"address list", "address list --in 10.1.0.48/28 -o name", "show 10.1.0.51",
		"show 10.1.0.51 -o json", "show 10.1.0.193", "show 10.1.0.194", "show 10.1.0.0 192.0.2.1",
		"show fd00:10::1", "show guest", "host list", "host list --sort borrowed -o name", "show c", "show b -o yaml",
		"block list", "block list --host b", "block list --pool pods -o csv", "show 10.1.0.192/28", "show 10.1.0.51/32 -o json", "check",
		"check -q -o json")
}

func TestRefusals(t *testing.T) {
	name := newBolt(t, cluster(t))
	env := map[string]string{"IPAMCTL_STORE": name, "dir": filepath.Dir(strings.TrimPrefix(name, "bolt://"))}
	transcript(t, "refusals.txt", env,
		"polo", "pool lst", "pool show", "pool show pod", "pool list extra", "pool list --bogus", "pool list -o xml", "pool list --sort size",
		"show 10.1", "show 10.9.9.9", "show 10.1.0.1%eth0", "show nobody", "show z", "show 10.1.0.0/28",
		"show 10.1.0.0/33", "check --in-use "+env["dir"]+"/none", "pool list --store redis://x", "pool list --store bolt://"+env["dir"]+"/none.db",
		"pool list --store etcd://127.0.0.1:1/x --timeout 100ms",
		"pool free --fit -5", "pool list --timeout -1s", "serve --interval -1s", "serve --interval 0", "watch", "watch --to x",
		"block list --pool nope", "block list --host nope", "assign --host z --handle y --pool pods6 --partial", "export --to "+env["dir"]+"/ipam.db",
		"map --svg "+env["dir"]+"/ipam.db")
	delete(env, "IPAMCTL_STORE")
	transcript(t, "nostore.txt", env, "pool list")
}

// What is in use is compared with what is held, in each form of the list.
func TestInUse(t *testing.T) {
	name := newBolt(t, cluster(t))
	dir := filepath.Dir(strings.TrimPrefix(name, "bolt://"))
	for file, text := range map[string]string{
		"list.txt": "address handle\n10.1.0.32 web-0 # the first\n10.1.0.33,other\n\n10.1.0.0\n192.168.0.1\n# end\n",
		"bad.txt":  "10.1.0.32\n10.1.0\n# end\n",
		"torn.txt": "10.1.0.32\n",
		"pods.json": `{"kind":"List","items":[
			{"metadata":{"name":"a"},"status":{"phase":"Running","podIPs":[{"ip":"10.1.0.32"},{"ip":"fd00:10::1"}]}},
			{"metadata":{"name":"b"},"spec":{"hostNetwork":true},"status":{"podIPs":[{"ip":"192.168.0.1"}]}},
			{"metadata":{"name":"c"},"status":{"phase":"Failed","podIPs":[{"ip":"10.1.0.200"}]}}]}`,
		"both.json": `{"kind":"List","items":[
			{"kind":"Pod","metadata":{"name":"a","annotations":{"k8s.v1.cni.cncf.io/network-status":"[{\"ips\":[\"10.1.0.32\",\"10.1.0.34\"]}]"}},"status":{"podIP":"10.1.0.32","podIPs":[{"ip":"10.1.0.32"}]}},
			{"kind":"Node","metadata":{"name":"n","annotations":{"projectcalico.org/IPv4VXLANTunnelAddr":"10.1.0.33"}}}]}`,
		"twice.json": `{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"a"},"status":{"podIP":"10.1.0.32"}}],"items":[]}`,
		"other.json": `{"kind":"Pod"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	transcript(t, "inuse.txt", map[string]string{"IPAMCTL_STORE": name, "dir": dir},
		"check --in-use "+dir+"/list.txt", "check --all-pools --in-use "+dir+"/list.txt", "check --pool pods --in-use "+dir+"/torn.txt", "check --pool pods6 --in-use "+dir+"/list.txt", "check --all-pools --in-use "+dir+"/list.txt -o csv", "check --use workload,tunnel --in-use "+dir+"/pods.json -o name -q",
		"check --pool pods --in-use "+dir+"/pods.json", "check --pool pods --in-use "+dir+"/both.json -o name", "check --pool pods --in-use "+dir+"/twice.json",
		"check --all-pools --in-use "+dir+"/bad.txt", "check --all-pools --in-use "+dir+"/other.json")
}

// A declined address is shown as such, with the client and its reason.
func TestDeclinedIsShown(t *testing.T) {
	ctx := t.Context()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "lan", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 28}); err != nil {
		t.Fatal(err)
	}
	al, err := e.Assign(ctx, alloc.HostOwner("dhcp"), "c1")
	if err == nil {
		al, err = e.Decline(ctx, alloc.DeclineArgs{Address: al.Address, Guard: alloc.Guard{Handle: "c1"}, For: time.Hour, Reason: "duplicate"})
	}
	if err != nil {
		t.Fatal(err)
	}
	v := viewOf(al, alloc.HostOwner("dhcp"), "lan")
	if cells := v.cells(); cells[1] != "declined" || cells[8] != "declined by=c1,declined=duplicate" {
		t.Errorf("%q", cells)
	}
}

// An address with several holders is shown once for each.
func TestHoldersAreShown(t *testing.T) {
	ctx := t.Context()
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "vips", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 28}); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr("10.0.0.5")
	for _, service := range []string{"http", "https"} {
		a := alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner(service), Handle: service, Share: alloc.Share{Max: 2}}
		if _, err := e.AssignIP(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	all, err := e.Pools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	views, err := lookup(ctx, e, all, at)
	if err != nil || len(views) != 2 || views[0].Handle != "http" || views[1].Handle != "https" || views[1].Host != "host:https" {
		t.Errorf("%+v, %v", views, err)
	}
}

// Each holder of a shared address is counted, and named, by every verb.
func TestEveryHolderCounts(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, func(e *ipset.Engine) {
		cluster(t)(e)
		for i, host := range []string{"x", "x", "y"} {
			claim := alloc.Claim{Handle: fmt.Sprint("svc-", i), Share: alloc.Share{Max: 3}}
			must[alloc.Allocation](t)(e.AssignIP(t.Context(), alloc.AssignIPArgs{Address: netip.MustParseAddr("192.0.2.9"), Owner: alloc.HostOwner(host), Handle: claim.Handle, Share: claim.Share}))
		}
	})}
	for line, want := range map[string]string{"host list -o csv": "host:x,1,2,0,1\n", "show x -o csv": "host:x,192.0.2.8/29,2,0,1\n", "show y -o csv": "host:y,,1,1,0\n"} {
		if _, out, _ := call(t, env, strings.Fields(line)...); !strings.Contains(out, want) {
			t.Errorf("%s:\n%s", line, out)
		}
	}
	if _, out, _ := call(t, env, "show", "192.0.2.9/32"); strings.Count(out, "svc-") != 3 {
		t.Error(out)
	}
}

// Addresses are found and counted by attribute, host and pool, and pools by a prefix that they overlap.
func TestSums(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	for line, want := range map[string]string{
		"address list --sum host -o csv":                  "host,held\nhost:a,20\nhost:c,17\nhost:b,1\n",
		"address list --sum pool -o csv":                  "pool,held\npods,37\npods6,1\n",
		"address list --sum namespace -o csv":             "namespace,held\ndefault,34\n,4\n",
		"address list --attribute namespace=x -o csv":     "address,",
		"pool list --in 10.1.0.128/25 -o name":            "pods\n",
		"pool list --in 10.0.0.0/8 -o name":               "pods\n",
		"pool list --in 10.96.0.0/12":                     "no pool overlaps 10.96.0.0/12",
		"address list --attribute namespace=x --sum pool": "no address is held",
	} {
		if status, out, stderr := call(t, env, strings.Fields(line)...); status != exitOK || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: status %d\n%s%s", line, status, out, stderr)
		}
	}
	for _, line := range []string{"address list --attribute namespace", "address list --as in-use --sum host"} {
		if status, _, _ := call(t, env, strings.Fields(line)...); status != exitUsage {
			t.Errorf("%s: status %d", line, status)
		}
	}
	if _, out, _ := call(t, env, "address", "list", "--attribute", "namespace=default", "-o", "name"); strings.Count(out, "\n") != 34 {
		t.Error(out)
	}
}
