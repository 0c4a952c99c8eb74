package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

func TestMain(m *testing.M) {
	if !counted() {
		os.Exit(m.Run())
	}
}

// Every work has an id and columns of its own.
func TestProgram(t *testing.T) {
	if err := program(new(*backends)).Check(); err != nil {
		t.Error(err)
	}
}

// A run of one state in memory, from the flags to the tables.
func TestRun(t *testing.T) {
	var out, log bytes.Buffer
	if err := run([]string{"-passes", "1", "-window", "1ms", "-only", `^memory/24/127`}, &out, &log); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a /24, 127 of 254 held |", "go-ipam v1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// A pair leaves a pool as it found it, so a nearly full pool never gets full, and both contestants
// refuse one address too many.
func TestPairs(t *testing.T) {
	for _, who := range []string{ours, theirs} {
		e := inMemory.filled(who, "10.0.0.0/24", 253)
		for range 5 {
			if err := e.pair(); err != nil {
				t.Fatal(who, err)
			}
		}
		if err := e.assign(); err != nil {
			t.Error(who, err)
		}
		if err := e.assign(); err == nil {
			t.Error(who, "assigns 255 addresses of a /24")
		}
	}
}

// The works on the servers run.
func TestServers(t *testing.T) {
	b := connect(servers.NewEtcd(t, servers.EtcdOptions{NoSync: true}), servers.NewPostgres(t, servers.PostgresOptions{NoSync: true}))
	defer b.client.Close()
	defer b.db.Close()
	for _, on := range []makers{b.onEtcd(), b.onPostgres()} {
		for _, w := range on.works("", "", true) {
			for _, c := range w.Cells {
				c.Open().Run(1)
			}
		}
	}
}
