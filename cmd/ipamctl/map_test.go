package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMap(t *testing.T) {
	name := newBolt(t, cluster(t))
	dir := filepath.Dir(strings.TrimPrefix(name, "bolt://"))
	env := map[string]string{"IPAMCTL_STORE": name, "dir": dir}
	data, err := os.ReadFile(strings.TrimPrefix(name, "bolt://"))
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old.db")
	if err := os.WriteFile(old, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "used.txt"), []byte("10.1.0.32 web-0\n# end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, stderr := call(t, env, "gc", "--in-use", dir+"/used.txt", "--candidates", dir+"/c.json", "--all-pools", "--yes"); stderr != "" {
		t.Fatal(stderr)
	}
	for _, line := range []string{"release --handle first --yes", "pool set pods --cooldown 0s", "release 10.1.0.238 --if-handle guest", "assign --host b --handle new -4 3", "assign --host c --handle web-1 10.1.0.238",
		"reserve add 10.1.0.64/27 10.1.0.60-10.1.0.66", "pool set pods --range 10.1.0.0-10.1.0.239"} {
		if status, _, stderr := call(t, env, strings.Fields(line)...); status != exitOK {
			t.Fatal(stderr)
		}
	}
	transcript(t, "map.txt", env,
		"map", "map pods --by host", "map pods --by age --ascii", "map --by pool --in 10.1.0.0/25", "map pods --view sizes", "map pods --fit 27",
		"map pods --candidates "+dir+"/c.json", "map pods --diff bolt://"+old, "map pods -o csv", "map pods --cells 4 -o json", "map pods --fit 27 -o json",
		"map lb --view both", "map none", "map --in 10.9.0.0/16", "map --by size", "map --view tree", "map --diff bolt://"+old+" --by host", "map --candidates "+dir+"/used.txt")
}
