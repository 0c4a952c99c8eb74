package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every alert has a paragraph in the runbook with a command, and every command in it works when it is typed, in the space of the alert.
func TestRunbook(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../metrics/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	_, runbook, _ := strings.Cut(read("README.md"), "\n## Runbook\n")
	of := map[string]string{}
	for _, paragraph := range strings.Split(runbook, "\n### ")[1:] {
		name, text, _ := strings.Cut(paragraph, "\n")
		of[name] = text
	}
	rules := read("alerts.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 8 || len(alerts) != len(of) {
		t.Errorf("%d alerts and %d paragraphs", len(alerts), len(of))
	}
	command := regexp.MustCompile("`ipamctl ([^`]+)`")
	for _, a := range alerts {
		if !strings.Contains(rules, "runbook_url: 'metrics/README.md#"+strings.ToLower(a[1])+"'") {
			t.Errorf("%s has no runbook_url", a[1])
		}
		_, rule, _ := strings.Cut(rules, "- alert: "+a[1]+"\n")
		rule, _, _ = strings.Cut(rule, "- alert: ")
		commands := command.FindAllStringSubmatch(of[a[1]], -1)
		if len(commands) == 0 && a[1] != "IpallocServiceConflict" { // the registry of services is in no store of ipamctl
			t.Errorf("%s: no command", a[1])
		}
		for _, c := range commands {
			if spaced := strings.Contains(rule, "$labels.space"); spaced != strings.HasPrefix(c[1], "--space SPACE ") {
				t.Errorf("%s: %s: the alert has a label space: %v", a[1], c[1], spaced)
			}
			if status, stderr := typed(t, c[1]); status != exitOK && status != exitFindings {
				t.Errorf("%s: %s: status %d: %s", a[1], c[1], status, stderr)
			}
		}
	}
}

// typed runs a command of the runbook on a store of two spaces, with what an operator would fill in.
func typed(t *testing.T, line string) (status int, stderr string) {
	t.Helper()
	dir := t.TempDir()
	list := dir + "/list"
	if err := os.WriteFile(list, []byte("# taken 2026-03-01T12:00:00Z\n10.1.0.0 web-0\n# end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), dir+"/ipam.db", boltstore.Options{NoSync: true}))
	for _, in := range []store.Store{db, must[store.Store](t)(store.Space(db, "blue"))} {
		e := newEngine(t, in)
		cluster(t)(e)
		must[[]alloc.Allocation](t)(e.Operator().SetReservations(t.Context(), reserving("10.1.0.240/30")))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	labels := dir + "/labels"
	if err := os.WriteFile(labels, []byte("a zone=x\n# end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line = strings.NewReplacer("SPACE", "blue", "POOL", "pods", "LIST", list, "FILE", dir+"/file", "HOST", "a", "HANDLE", "web-0", "ADDRESS", "10.1.0.0",
		"NAME PREFIX", "new 10.77.0.0/24", "PREFIX", "10.1.0.240/30", "LARGER", "10.1.0.0/23", "NODES", labels).Replace(line)
	name := "bolt://" + dir + "/ipam.db"
	if strings.Contains(line, "watch") { // which follows no bbolt file
		line += " --timeout 100ms"
		if status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": name}, "store", "copy", "sqlite://"+dir+"/ipam.sqlite"); status != exitOK {
			t.Fatal(stderr)
		}
		name = "sqlite://" + dir + "/ipam.sqlite"
	}
	if strings.Contains(line, " gc ") || strings.HasPrefix(line, "gc ") {
		line += " --yes"
	}
	status, _, stderr = call(t, map[string]string{"IPAMCTL_STORE": name}, strings.Fields(line)...)
	return status, stderr
}
