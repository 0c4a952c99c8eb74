package world

import (
	"reflect"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every method of an engine and of its operator is among the calls and queries of the laws.
func TestCallsAreComplete(t *testing.T) {
	have := map[string]bool{
		"InSpace": true, "DryRun": true, "Operator": true, "Importer": true, // make the engines of the laws
		"Changes": true, "Follow": true, // have laws of their own
	}
	for _, c := range append(Calls(), Queries()...) {
		have[c.Method] = true
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*ipset.Engine](), reflect.TypeFor[*ipset.Operator]()} {
		for i := range of.NumMethod() {
			if name := of.Method(i).Name; !have[name] {
				t.Errorf("no law calls %s.%s", of.Elem().Name(), name)
			}
		}
	}
}

// limits are stores that take any commit, small ones, and ones as small as those of etcd.
var limits = []store.Limits{{}, {Ops: 127}, {Ops: 24}}

// A query changes nothing, and its answer does not depend on what the engine has cached.
func TestQueriesOnColdAndWarmEngines(t *testing.T) {
	w := New(t)
	for _, l := range limits {
		for _, space := range Spaces {
			db := faults.NewLimited(w.Copy(t).DB, l)
			warm, small := w.Engine(t, db, space, 0), w.Engine(t, db, space, 2)
			for range 2 {
				for _, q := range Queries() {
					want, wantErr := q.Do(t.Context(), w.Engine(t, db, space, 0))
					for _, e := range []*ipset.Engine{warm, small} {
						if got, err := q.Do(t.Context(), e); got != want || errText(err) != errText(wantErr) {
							t.Errorf("%s of %q: an engine with a cache answers\n%s %v\none without\n%s %v", q.Method, space, got, err, want, wantErr)
						}
					}
				}
			}
			if n := db.Counts().Commits; n > 0 {
				t.Errorf("%d commits by queries", n)
			}
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A call on a handle, a host, a pool or a space leaves everything else as it was, and changes something.
func TestCallsLeaveOthersAlone(t *testing.T) {
	w := New(t)
	before := w.Look(t, w.DB)
	limits := limits
	if testing.Short() {
		limits = limits[2:]
	}
	for _, l := range limits {
		for i, c := range Calls() {
			for _, space := range []string{"", "blue"} {
				w := w.Copy(t)
				got, err := c.Do(t.Context(), w.Engine(t, faults.NewLimited(w.DB, l), space, 0))
				changed := false
				for _, line := range Diff(before, w.Look(t, w.DB)) {
					changed = true
					if in, what := Key(line); in != space || c.May == nil || !c.May(what) {
						t.Errorf("%s (%d) in %q with %v, which answers %s %v, changes %s", c.Method, i, space, l, got, err, line)
					}
				}
				if !changed && c.May != nil {
					t.Errorf("%s (%d) in %q changes nothing: %s %v", c.Method, i, space, got, err)
				}
			}
		}
	}
}

// A dry run answers as the call does, on a cold engine and on one that has done something, and writes nothing.
func TestDryRunsAnswerAsCalls(t *testing.T) {
	w := New(t)
	for _, l := range limits {
		for i, c := range Calls() {
			if c.Method == "RemoveSpace" || c.Method == "NewCollector" {
				continue
			}
			w := w.Copy(t)
			db := faults.NewLimited(w.DB, l)
			e := w.Engine(t, db, "blue", 0)
			for range 2 { // the second time the engine knows what it has read
				if _, err := e.Operator().Check(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				db.Reset()
				dry, dryErr := c.Do(t.Context(), e.DryRun())
				if db.Counts().Commits > 0 {
					t.Errorf("%s (%d): the dry run commits", c.Method, i)
				}
				got, err := c.Do(t.Context(), e)
				if dry != got || errText(dryErr) != errText(err) {
					t.Errorf("%s (%d) with %v: the dry run answers\n%s %v\nthe call\n%s %v", c.Method, i, l, dry, dryErr, got, err)
				}
			}
		}
	}
}
