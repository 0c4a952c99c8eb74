package main

import (
	"cmp"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/world"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An import that is interrupted at any commit and repeated leaves what one leaves that was not interrupted. Until then its pools
// serve no host.
func TestInterruptedImport(t *testing.T) {
	w := world.NewAt(t, noon.Add(-10*time.Minute))
	inv := must[*inventory](t)(take(t.Context(), newEngine(t, w.DB)))
	for _, at := range []string{"10.0.3.249", "10.0.3.250", "10.0.3.251", "10.0.3.252"} {
		inv.Addresses = append(inv.Addresses, addressEntry{Address: at, Host: "host:h1", Until: timeText(noon.Add(time.Hour)), Cooling: true})
	}
	inv.Addresses = append(inv.Addresses, addressEntry{Address: "10.0.3.253", Host: "host:h1", Handle: "standby", Alternate: map[string]string{"pod": "b"}})
	a := &app{now: func() time.Time { return noon }, stderr: io.Discard}
	bring := func(db store.Store) error {
		inv := *inv // an import divides it
		i := a.newImport(newEngine(t, db), &inv, "json", alloc.Owner{})
		err := i.bring(t.Context())
		for _, r := range i.refused {
			t.Errorf("refused: %s: %v", r.what, r.why)
		}
		return err
	}
	picture := func(db store.Store) string {
		is := must[*inventory](t)(take(t.Context(), newEngine(t, db)))
		slices.SortFunc(is.Addresses, func(x, y addressEntry) int {
			return cmp.Or(strings.Compare(x.Address, y.Address), strings.Compare(x.Handle, y.Handle))
		})
		return string(must[[]byte](t)(json.MarshalIndent(is, "", " ")))
	}
	whole := store.NewMemory()
	if err := bring(whole); err != nil {
		t.Fatal(err)
	}
	want := picture(whole)
	for k, stopped := 1, true; stopped; k++ {
		db := faults.NewLimited(store.NewMemory(), store.Limits{Ops: 64, Bytes: 1 << 20})
		db.Script(faults.AtCommit(k, faults.Fail(faults.ErrInjected)))
		if stopped = bring(db) != nil; stopped {
			db.Script(nil)
			e := newEngine(t, db)
			if got, err := e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("h1"), Num4: 1, Handle: "meanwhile"}); err == nil {
				t.Fatalf("commit %d: meanwhile %+v", k, got)
			}
			if err := bring(db); err != nil {
				t.Fatalf("commit %d: %v", k, err)
			}
		}
		if got := picture(db); got != want {
			t.Fatalf("commit %d:\n%s\nwant\n%s", k, got, want)
		}
	}
}

// Leases and cooldowns end when they do in the source, however long the import takes.
func TestImportKeepsEnds(t *testing.T) {
	dir := t.TempDir()
	from, to := newBolt(t, cluster(t)), "bolt://"+dir+"/to.db"
	if status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": from}, "export", "--to", dir+"/all.json"); status != exitOK {
		t.Fatal(stderr)
	}
	var seconds atomic.Int64
	slow := &app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return to }, now: func() time.Time { return noon.Add(time.Duration(seconds.Add(1)) * time.Second) }}
	if status := slow.run(t.Context(), []string{"import", dir + "/all.json"}); status != exitOK {
		t.Fatal(status)
	}
	openAll(t, map[string]string{"IPAMCTL_STORE": to})
	if status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": to}, "diff", from); status != exitOK {
		t.Error(out, stderr)
	}
}

// A file that is not what its format says is a mistake of who names it.
func TestWrongFiles(t *testing.T) {
	pool := func(spec string) string { return `{"kind":"IPPool","metadata":{"name":"p"},"spec":` + spec + `}` }
	file := t.TempDir() + "/file"
	for _, f := range []struct{ format, text string }{
		{"json", `{"pool":[]}`}, {"csv", "\"a\n"}, {"nodes", `{"kind":"Node","metadata":{"name":"n"},"spec":[]}`},
		{"calico", `{"kind":`}, {"calico", `{"kind":"Pod"}`}, {"calico", pool("[]")}, {"calico", pool(`{"nodeSelector":"a == 'b'"}`)},
	} {
		if err := os.WriteFile(file, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&app{}).readInventory(f.format, file); statusOf(err) != exitUsage {
			t.Errorf("%s %s: status %d, %v", f.format, f.text, statusOf(err), err)
		}
	}
}

// A copy says how much there is, and how much of it was missing.
func TestCopySays(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	to := "bolt://" + t.TempDir() + "/to.db"
	var said [2]struct{ Records, Written int }
	for i := range said {
		status, out, stderr := call(t, env, "store", "copy", to, "-o", "json")
		if err := json.Unmarshal([]byte(out), &said[i]); status != exitOK || err != nil {
			t.Fatal(status, stderr, err)
		}
	}
	if first, again := said[0], said[1]; first.Records == 0 || first.Written != first.Records || again.Records != first.Records || again.Written != 0 {
		t.Errorf("%+v", said)
	}
}
