package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// A command that reads works while another process has the file, also while that writes; one that
// writes says who has it.
func TestBesideTheOwner(t *testing.T) {
	name := newBolt(t, cluster(t))
	db, err := boltstore.Open(t.Context(), strings.TrimPrefix(name, "bolt://"), boltstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	e := newEngine(t, db)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			_, err := e.AutoAssign(t.Context(), ipset.AssignArgs{Owner: ipset.HostOwner("d"), Num6: 1, Claim: ipset.Claim{Handle: "writer"}})
			select {
			case <-stop:
				done <- err
				return
			default:
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	env := map[string]string{"IPAMCTL_STORE": name}
	for range 5 {
		status, out, stderr := call(t, env, "check")
		if status != exitOK || out != "" || !strings.Contains(stderr, "reading a verified copy of it") {
			t.Errorf("status %d\n%s\n%s", status, out, stderr)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	status, out, _ := call(t, env, "host", "list", "-o", "name")
	if status != exitOK || out != "a\nb\nc\nd\n" {
		t.Errorf("status %d, %q", status, out)
	}
}

// A copy that was torn is made again, also if what it shows is the file of another program.
func TestTornCopies(t *testing.T) {
	for _, c := range []struct {
		err  error
		torn bool
	}{
		{nil, false}, {ipalloc.ErrCorrupt, true}, {boltstore.ErrForeign, true}, {context.Canceled, false}, {os.ErrPermission, false},
	} {
		if got := torn(c.err); got != c.torn {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
