package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// node and list write objects as kubectl does.
func node(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"uid":"1"},"spec":{%s},"status":{"phase":"x"}}`, name, spec)
}

func list(meta string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"List","metadata":{%s},"items":[%s]}`, meta, strings.Join(items, ","))
}

func ipPool(spec string) string {
	return fmt.Sprintf(`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"p"},"spec":{"cidr":"10.10.0.0/24","blockSize":30,%s}}`, spec)
}

func ipBlock(cidr, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMBlock","metadata":{"name":"b"},"spec":{"cidr":%q,%s}}`, cidr, spec)
}

const blockOfA = `"affinity":"host:w1","allocations":[null,0,null,null],"unallocated":[0,2,3],"attributes":[{"handle_id":"A","secondary":{"node":"w1"}}]`

// A file that is not complete, or says what is not known, is refused as a whole: nothing is written.
func TestIncompleteFilesAreRefused(t *testing.T) {
	a, b := node("a", `"podCIDR":"10.244.0.0/24"`), node("b", `"podCIDR":"10.244.1.0/24"`)
	dir := t.TempDir()
	for name, c := range map[string]struct{ format, text string }{
		"a page":              {"nodes", list(`"continue":"x"`, a)},
		"a page that counts":  {"nodes", list(`"remainingItemCount":3`, a)},
		"two documents":       {"nodes", "apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: List\nitems: []\n"},
		"two lists":           {"nodes", "apiVersion: v1\nitems: []\nkind: List\napiVersion: v1\nitems: []\nkind: List\n"},
		"two lists of JSON":   {"nodes", list("", a) + "\n" + list("", b)},
		"a key twice":         {"nodes", list("", `{"kind":"Node","metadata":{"name":"a"},"spec":{"podCIDR":"10.244.0.0/24","podCIDR":"10.244.1.0/24"}}`)},
		"an unknown field":    {"nodes", list("", node("a", `"podCIDR":"10.244.0.0/24","podRanges":[]`))},
		"another kind":        {"nodes", list("", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`)},
		"nothing":             {"nodes", ""},
		"no prefix":           {"nodes", list("", node("a", `"podCIDR":"10.244.0/24"`))},
		"a node selector":     {"calico", list("", ipPool(`"nodeSelector":"a == 'b'"`))},
		"a namespace":         {"calico", list("", ipPool(`"namespaceSelector":"tenant == 'b'"`))},
		"an unknown mode":     {"calico", list("", ipPool(`"assignmentMode":"Sometimes"`))},
		"a new field":         {"calico", list("", ipPool(`"tenant":"b"`))},
		"a block's new field": {"calico", list("", ipPool(`"disabled":false`), ipBlock("10.10.0.0/30", blockOfA+`,"shadow":1`))},
		"another system":      {"calico", list("", `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"IPPool","metadata":{"name":"x"},"spec":{"cidr":"10.7.0.0/24"}}`)},
		"an unknown column":   {"csv", "address,vrf\n10.10.0.1,blue\n"},
		"a column twice":      {"csv", "address,handle,handle\n10.10.0.1,a,b\n"},
		"no address":          {"csv", "address,handle\n10.10.0,a\n"},
		"an empty cell":       {"csv", "address,handle\n,a\n"},
		"a time":              {"csv", "address,until\n10.10.0.1,tomorrow\n"},
		"no line":             {"csv", ""},
		"JSON twice":          {"json", `{"pools":[],"pools":[{"name":"p","prefix":"10.10.0.0/24"}],"addresses":[]}`},
		"JSON, two documents": {"json", "pools: []\naddresses: []\n---\npools: []\n"},
	} {
		file := dir + "/file"
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/" + strings.ReplaceAll(name, " ", "-")}
		status, out, stderr := call(t, env, "import", file, "--format", c.format, "--host", "h")
		if status != exitUsage || exists(strings.TrimPrefix(env["IPAMCTL_STORE"], "bolt://")) {
			t.Errorf("%s: status %d\n%s%s", name, status, out, stderr)
		}
	}
	for name, files := range map[string][]string{"parent": {"bridge/10.5.0.2"}, "empty": {}, "strange": {"10.5.0.2", "notes.txt"}} {
		d := dir + "/" + name
		if err := os.MkdirAll(d+"/bridge", 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "parent" {
			os.Remove(d + "/bridge")
		}
		for _, f := range files {
			if err := os.WriteFile(d+"/"+f, []byte("c1\r\neth0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/hl"}, "import", d, "--format", "host-local", "--host", "h"); status != exitUsage {
			t.Errorf("%s: status %d\n%s%s", name, status, out, stderr)
		}
	}
}

// A refusal of a file of JSON names the line.
func TestRefusalsNameTheLine(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ format, text, says string }{
		"a field":    {"nodes", "{\"kind\":\"NodeList\",\"items\":[\n" + node("a", `"podCIDR":"10.244.0.0/24"`) + ",\n" + strings.Replace(node("b", `"podCIDR":"10.244.1.0/24","podRanges":[]`), `"spec"`, "\n\"spec\"", 1) + "]}", "line 4: Node b: the field podRanges"},
		"a prefix":   {"nodes", "{\"kind\":\"NodeList\",\"items\":[\n" + node("a", `"podCIDR":"10.244.0/24"`) + "]}", "line 2: node a"},
		"a page":     {"nodes", "{\"kind\":\"NodeList\",\n\"metadata\":{\"continue\":\"x\"},\"items\":[]}", "line 2: a page"},
		"a kind":     {"nodes", "{\"kind\":\"List\",\"items\":[\n\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}]}", "line 3: an object of kind \"Pod\""},
		"a selector": {"calico", "{\"kind\":\"List\",\"items\":[\n" + strings.Replace(ipPool("\n\"nodeSelector\":\"a == 'b'\""), ",\n", ",\n\n", 1) + "]}", "line 4: IPPool p: the node selector"},
		"our field":  {"json", "{\"pools\":[],\n\"addresses\":[],\n\"vrf\":1}", "line 3: json: unknown field"},
		"our type":   {"json", "{\"pools\":[],\n\"addresses\":[{\"address\":7}]}", "line 2: json: cannot unmarshal"},
		"our key":    {"json", "{\"pools\":[],\n\"pools\":[]}", "line 2: key \"pools\" already set"},
		"a list":     {"nodes", "{\"kind\":\"NodeList\",\"items\":[]}\n{\"kind\":\"NodeList\",\"items\":[]}", "line 2: a second document"},
	} {
		file := dir + "/file"
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/db"}, "import", file, "--format", c.format)
		if status != exitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: status %d, %s", name, status, stderr)
		}
	}
}

// What a file has is taken, or it is reserved, and never free: after the pool is opened, all that is left of it is assigned, and none of
// what the file has is among it.
func TestImportLeavesNothingFree(t *testing.T) {
	for name, c := range map[string]struct {
		format, pool, text string
		status             int
		kept               []string // addresses that no call gets
		says               string   // in the answer
	}{
		"a block of another size": {"calico", "", list("", ipPool(`"nodeSelector":"all()"`), ipBlock("10.10.0.0/29", `"affinity":"host:w1","allocations":[null,0,null,null,null,null,null,null],"unallocated":[0,2,3,4,5,6,7],"attributes":[{"handle_id":"A"}]`)), exitConflict, []string{"10.10.0.0", "10.10.0.1", "10.10.0.7"}, "reserved        1"},
		"a deleted block":         {"calico", "", list("", ipPool(`"ipipMode":"Always"`), ipBlock("10.10.0.4/30", blockOfA+`,"deleted":true`), ipBlock("10.10.0.0/30", blockOfA)), exitConflict, []string{"10.10.0.4", "10.10.0.5", "10.10.0.1"}, "IPPool.ipipMode 1"},
		"a reservation":           {"calico", "", list("", ipPool(`"disabled":false`), `{"apiVersion":"projectcalico.org/v3","kind":"IPReservation","metadata":{"name":"r"},"spec":{"reservedCIDRs":["10.10.0.8/31"]}}`), exitOK, []string{"10.10.0.8", "10.10.0.9"}, "closed"},
		"a manual pool":           {"calico", "", list("", ipPool(`"assignmentMode":"Manual"`), ipBlock("10.10.0.0/30", blockOfA)), exitOK, []string{"10.10.0.1", "10.10.0.2", "10.10.0.100"}, "closed"},
		"a pool that is deleted":  {"calico", "", list("", strings.Replace(ipPool(`"disabled":false`), `"name":"p"`, `"name":"p","deletionTimestamp":"2026-03-01T12:00:00Z"`, 1)), exitOK, []string{"10.10.0.100"}, "closed"},
		"a /25 of a node":         {"nodes", "10.10.0.0/22 --block-bits 24", list("", node("a", `"podCIDR":"10.10.0.0/24"`), node("c", `"podCIDR":"10.10.1.0/25"`)), exitConflict, []string{"10.10.1.0", "10.10.1.200"}, "Node.status 2"},
		"one CIDR of two nodes":   {"nodes", "10.10.0.0/22 --block-bits 24", list("", node("a", `"podCIDR":"10.10.0.0/24"`), node("b", `"podCIDR":"10.10.0.0/24"`)), exitConflict, []string{"10.10.0.0", "10.10.0.9"}, "reserved"},
		"two families":            {"nodes", "10.10.0.0/22 --block-bits 24", list("", node("a", `"podCIDR":"10.10.0.0/24","podCIDRs":["10.10.0.0/24","fd00::/64"]`)), exitConflict, nil, "reserved"},
		"lines that conflict":     {"csv", "10.10.0.0/28", "address,handle\n10.10.0.1,a\n10.10.0.1,b\n10.10.0.2,c\n", exitConflict, []string{"10.10.0.1", "10.10.0.2"}, "reserved"},
		"a lease that is later":   {"csv", "10.10.0.0/28", "address,handle,until\n10.10.0.1,a,2026-03-01T13:00:00Z\n10.10.0.1,b,4294967295\n10.10.0.2,c,1\n", exitOK, []string{"10.10.0.1"}, "ended           1"},
		"a mask, a BOM, capitals": {"csv", "10.10.0.0/28", "\ufeffAddress;Handle\r\n10.10.0.1/24;a\r\n", exitOK, []string{"10.10.0.1"}, "prefix length 1"},
		"in no pool":              {"csv", "10.10.0.0/28", "address\n10.10.0.1\n10.99.0.1\n", exitConflict, []string{"10.10.0.1"}, "reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			env := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/ipam.db"}
			run := func(want int, line string) string {
				t.Helper()
				status, out, stderr := call(t, env, strings.Fields(line)...)
				if status != want {
					t.Errorf("%s: status %d, want %d\n%s%s", line, status, want, out, stderr)
				}
				return out + stderr
			}
			if err := os.WriteFile(dir+"/file", []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.pool != "" {
				run(exitOK, "pool add p "+c.pool)
			}
			flags := dir + "/file --format " + c.format
			owner := map[bool]string{true: " --host virtual:old"}[c.format == "csv"]
			if out := run(c.status, "import "+flags+owner); !strings.Contains(out, c.says) {
				t.Errorf("%q is not in:\n%s", c.says, out)
			}
			before := run(exitOK, "export")
			run(c.status, "import "+flags+owner)
			if after := run(exitOK, "export"); after != before {
				t.Errorf("repeated:\n%s\nthen:\n%s", before, after)
			}
			run(exitNotFound, "assign --host w9 --handle early --pool p")
			run(exitRefused, "assign --host w9 --handle early 10.10.0.3")
			differs := map[bool]int{true: exitOK, false: exitFindings}[c.status == exitOK]
			run(differs, "diff "+flags)
			open := run(exitOK, "pool open p --yes")
			if c.status != exitOK && name != "in no pool" && name != "two families" && !strings.Contains(open, c.kept[0]) {
				t.Errorf("open does not name what is reserved:\n%s", open)
			}
			_, got, _ := call(t, env, "assign", "--host", "w9", "--handle", "other", "-4", "1024", "--partial", "-o", "name")
			for _, address := range strings.Fields(got) {
				for _, kept := range c.kept {
					if address == kept {
						t.Errorf("%s is assigned", address)
					}
				}
			}
			run(exitOK, "check")
			if c.status == exitOK && c.format == "csv" {
				run(exitOK, "import "+flags+owner) // all is there
			}
		})
	}
}

// While its pool is closed an import is repeated: the file wins over what it has brought before, and over nothing else.
func TestImportAgain(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/ipam.db"}
	run := func(want int, line string) string {
		t.Helper()
		status, out, stderr := call(t, env, strings.Fields(line)...)
		if status != want {
			t.Fatalf("%s: status %d, want %d\n%s%s", line, status, want, out, stderr)
		}
		return out + stderr
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(dir+"/f.csv", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const from = " --format csv --host virtual:old"
	run(exitOK, "pool add p 10.10.0.0/28")
	run(exitOK, "assign --host w1 --handle mine 10.10.0.9")
	run(exitOK, "pool set p --closed --cooldown 1h")
	write("address,handle\n10.10.0.1,a\n10.10.0.2,b\n10.10.0.3,c\n")
	run(exitOK, "import "+dir+"/f.csv"+from)
	write("address,handle\n10.10.0.1,a\n10.10.0.2,new\n10.10.0.4,d\n10.10.0.9,other\n")
	out := run(exitConflict, "import "+dir+"/f.csv"+from)
	for _, want := range []string{"replaced        1", "not in file     1", "reserved        1", "10.10.0.3 is of an earlier import", "10.10.0.9: \"mine\" has it"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if out := run(exitOK, "address list"); !strings.Contains(out, "mine") || !strings.Contains(out, " new ") || strings.Contains(out, " b ") || !strings.Contains(out, "10.10.0.3") {
		t.Error(out)
	}
	if out := run(exitConflict, "import "+dir+"/f.csv --prune"+from); !strings.Contains(out, "pruned          1") {
		t.Error(out)
	}
	write("address,handle\n10.10.0.1,a\n10.10.0.2,new\n10.10.0.4,d\n") // what stood in the way is gone from the file
	if out := run(exitOK, "import "+dir+"/f.csv"+from); strings.Contains(out, "reserved") {
		t.Error(out)
	}
	if out := run(exitOK, "reserve list"); !strings.Contains(out, "nothing is reserved") {
		t.Error(out)
	}
	run(exitOK, "import "+dir+"/f.csv --format csv --host virtual:another --dry-run --into-open")
	run(exitOK, "pool open p --yes")
	run(exitOK, "import "+dir+"/f.csv"+from) // all is there
	write("address,handle\n10.10.0.1,a\n10.10.0.5,e\n")
	run(exitConflict, "import "+dir+"/f.csv"+from)
	if out := run(exitOK, "address list"); strings.Contains(out, "10.10.0.5") {
		t.Error("an open pool was changed:\n" + out)
	}
	run(exitOK, "import "+dir+"/f.csv --into-open"+from)
	if out := run(exitOK, "address list"); !strings.Contains(out, "10.10.0.5") || !strings.Contains(out, "new") {
		t.Error(out)
	}
}

// diff reads the addresses of a file a second time: what a reader of a format loses differs.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	a := &app{now: clock, stdin: strings.NewReader("")}
	for name, c := range map[string]struct {
		format, text string
		lose         func(inv *inventory)
		says         string
	}{
		"a line of CSV":    {"csv", "address;handle\r\n10.10.0.1/24;a\r\n10.10.0.2;b\r\n", func(inv *inventory) { inv.Addresses = inv.Addresses[:1] }, "10.10.0.2"},
		"an ended lease":   {"csv", "address,until\n10.10.0.1,1\n10.10.0.2,0\n", func(inv *inventory) { inv.over = nil }, "10.10.0.1"},
		"a node":           {"nodes", list("", node("a", `"podCIDR":"10.244.0.0/24"`), node("b", `"podCIDR":"10.244.1.0/24"`)), func(inv *inventory) { inv.Blocks = inv.Blocks[1:] }, "10.244.0.0/24"},
		"an allocation":    {"calico", list("", ipPool(`"disabled":false`), ipBlock("10.10.0.4/30", blockOfA)), func(inv *inventory) { inv.Addresses = nil }, "10.10.0.5"},
		"a pool":           {"calico", "apiVersion: v1\nkind: List\nitems:\n- " + ipPool(`"disabled":false`) + "\n", func(inv *inventory) { inv.Pools = nil }, "10.10.0.0/24"},
		"a refused block":  {"calico", list("", ipPool(`"disabled":false`), ipBlock("10.10.0.4/30", blockOfA+`,"deleted":true`)), func(inv *inventory) { inv.refused = nil }, "10.10.0.4/30"},
		"a prefix":         {"json", `{"pools":[],"addresses":[],"prefixes":[{"prefix":"10.96.0.0/24","pool":"10.96.0.0/16","owner":"a"}]}`, func(inv *inventory) { inv.Prefixes = nil }, "10.96.0.0/24"},
		"an other space":   {"json", `{"pools":[],"addresses":[],"spaces":{"blue":{"pools":[],"addresses":[{"address":"10.1.0.9","handle":"h"}]}}}`, func(inv *inventory) { inv.Spaces = nil }, "10.1.0.9"},
		"an attachment":    {"json", `{"pools":[],"addresses":[],"attachments":[{"network":"n","attachment":"c/eth0","addresses":["fd00::7"]}]}`, func(inv *inventory) { inv.Attachments[0].Addresses = nil }, "fd00::7"},
		"a host-local one": {"host-local", "", func(inv *inventory) { inv.Addresses = inv.Addresses[1:] }, "10.5.0.2"},
	} {
		file := dir + "/file"
		if c.format == "host-local" {
			file = "testdata/foreign/host-local"
		} else if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		inv := must[*inventory](t)(a.other(t.Context(), c.format, file))
		whole := len(inv.refused)
		c.lose(inv)
		if err := readAgain(c.format, file, inv); err != nil {
			t.Fatal(name, err)
		}
		found := differences(&inventory{}, inv)
		if whole > 0 && name != "a refused block" || !slices.ContainsFunc(found, func(d difference) bool { return d.What == c.says && d.Change == "not read" }) {
			t.Errorf("%s: %d refused before, then %v", name, whole, found)
		}
	}
}
