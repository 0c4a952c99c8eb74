package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// admin sends a request about an object of the shared API server, as a person with kubectl would.
func admin(t *testing.T, method, name, body string) {
	t.Helper()
	path := objects("default")
	if name != "" {
		path += "/" + name
	}
	if _, err := sharedServer(t).Request(limited(t), method, path, body); err != nil {
		t.Fatal(err)
	}
}

// refusal opens a store that must be refused.
func refusal(t *testing.T, name string, o Options) error {
	t.Helper()
	_, err := Open(limited(t), configOf(sharedServer(t)), "default", name, o)
	if err == nil {
		t.Fatalf("%s was opened", name)
	}
	return err
}

// An object that is deleted by hand is noticed by the process that needs it and by every process that opens the store. None
// takes the store for an empty one or continues beside the gap.
func TestDeletedByHand(t *testing.T) {
	ctx := limited(t)
	for what, deleted := range map[string]func(*Store) string{
		"head":         func(s *Store) string { return s.name },
		"next slot":    func(s *Store) string { return slotName(s.name, s.rep.seq+1, s.slots) },
		"newest slot":  func(s *Store) string { return slotName(s.name, s.rep.seq, s.slots) },
		"the snapshot": func(s *Store) string { return lastPart(t, s) },
	} {
		t.Run(what, func(t *testing.T) {
			s := openAt(t, newName(), Options{Slots: minSlots})
			watching := openAt(t, s.name, Options{})
			work(t, s, 5)
			s.settleSnapshot()
			contents(t, watching)
			ended := make(chan error, 1)
			if what != "the snapshot" {
				go func() {
					for _, err := range watching.Watch(ctx, 5, "") {
						if err != nil {
							ended <- err
						}
					}
				}()
			} else {
				ended <- ipalloc.ErrReplaced
			}
			time.Sleep(50 * time.Millisecond) // the watch is likely there; if not, it finds the gap when it begins
			admin(t, http.MethodDelete, deleted(s), "")
			if err := <-ended; !errors.Is(err, ipalloc.ErrReplaced) || store.Retryable(err) {
				t.Errorf("a watch: %v", err)
			}
			want := ipalloc.ErrReplaced
			if what == "head" {
				want = ipalloc.ErrMismatch // the rest is of no store
			}
			if err := refusal(t, s.name, Options{}); !errors.Is(err, want) {
				t.Errorf("another process: %v", err)
			}
			var err error
			for i := range 3 * minSlots {
				if _, err = s.Commit(ctx, []store.Op{put(fmt.Sprint("after", i), "", 0)}); err != nil {
					break
				}
			}
			if what != "the snapshot" && !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("the process that writes: %v", err)
			}
			if _, err := s.Get(ctx, nil, "chain"); what != "the snapshot" && !errors.Is(err, ipalloc.ErrReplaced) {
				t.Errorf("a read after that: %v", err)
			}
		})
	}
}

// settleSnapshot waits until no snapshot is being written.
func (s *Store) settleSnapshot() {
	for {
		s.mu.Lock()
		busy := s.compacting != nil
		s.mu.Unlock()
		if !busy {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// lastPart returns the name of a part of the newest snapshot.
func lastPart(t *testing.T, s *Store) string {
	t.Helper()
	head, err := s.client.get(limited(t), s.name)
	if err != nil || head.Spec.Snapshot == nil {
		t.Fatalf("%+v, %v", head, err)
	}
	return partName(s.name, head.Spec.Snapshot, head.Spec.Snapshot.Parts-1)
}

// A store that is removed under a running process and made anew is another store to that process.
func TestMadeAnew(t *testing.T) {
	s := openAt(t, newName(), Options{Slots: minSlots})
	work(t, s, 3)
	s.settleSnapshot()
	if _, err := sharedServer(t).Request(limited(t), http.MethodDelete, objects("default")+"?labelSelector="+nameLabel+"%3D"+s.name, ""); err != nil {
		t.Fatal(err)
	}
	if err := refusal(t, s.name, Options{NoCreate: true}); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Error(err)
	}
	other := openAt(t, s.name, Options{Slots: minSlots})
	work(t, other, 3)
	if _, err := s.Commit(limited(t), []store.Op{put("x", "", store.AnyRevision)}); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("a commit: %v", err)
	}
	if _, _, err := s.List(limited(t), store.Range{}); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("a read: %v", err)
	}
	if got := contents(t, other); len(got) != 4 {
		t.Errorf("the new store holds %v", got)
	}
}

// A list of all objects is a backup: a store that is removed and created from it holds what it held, and continues.
func TestBackup(t *testing.T) {
	ctx := limited(t)
	s := openAt(t, newName(), Options{Slots: minSlots})
	want := work(t, s, 2*minSlots+1)
	s.settleSnapshot()
	selector := objects("default") + "?labelSelector=" + nameLabel + "%3D" + s.name
	list, err := sharedServer(t).Request(ctx, http.MethodGet, selector, "")
	if err != nil {
		t.Fatal(err)
	}
	var backup struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(list), &backup); err != nil {
		t.Fatal(err)
	}
	if _, err := sharedServer(t).Request(ctx, http.MethodDelete, selector, ""); err != nil {
		t.Fatal(err)
	}
	for _, o := range backup.Items {
		delete(o["metadata"].(map[string]any), "resourceVersion") // as kubectl create does
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		admin(t, http.MethodPost, "", string(body))
	}
	restored := openAt(t, s.name, Options{NoCreate: true})
	if got := contents(t, restored); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range 2 * minSlots {
		if _, err := restored.Commit(ctx, []store.Op{put(fmt.Sprint("after", i), "", 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, []store.Op{put("x", "", 0)}); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("a process from before: %v", err)
	}
}

// A write at a lower resource version than one seen before is of an earlier state of the cluster: the process stops.
func TestRollback(t *testing.T) {
	s := openAt(t, newName(), Options{Slots: minSlots}, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return rollback{next} })
	})
	_, err := s.Commit(limited(t), []store.Op{put("a", "", 0)})
	if !errors.Is(err, ipalloc.ErrReplaced) || !errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Error(err)
	}
	if _, err := s.Get(limited(t), nil, "a"); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Error(err)
	}
}

// rollback answers writes of log objects as if the cluster were at resource version 1.
type rollback struct{ next http.RoundTripper }

func (r rollback) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPut || !strings.Contains(req.URL.Path, ".log.") {
		return resp, err
	}
	var o object
	err = json.NewDecoder(resp.Body).Decode(&o)
	_ = resp.Body.Close()
	o.Metadata.ResourceVersion = "1"
	body, _ := json.Marshal(o)
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, err
}

// Objects that are not of the store are refused, not adopted: a head of a newer release, an object that is no head, a log of
// another store, damaged data.
func TestForeignObjects(t *testing.T) {
	name := newName()
	admin(t, http.MethodPost, "", manifest(name, name, `{store: x, role: Log, seq: 0}`))
	if err := refusal(t, name, Options{}); !errors.Is(err, ipalloc.ErrMismatch) || !strings.Contains(err.Error(), "not the head") {
		t.Error(err)
	}
	name = newName()
	admin(t, http.MethodPost, "", manifest(name, name+".log.1", `{store: x, role: Log, seq: 1}`))
	if err := refusal(t, name, Options{}); !errors.Is(err, ipalloc.ErrMismatch) || !strings.Contains(err.Error(), "the head is not there") {
		t.Error(err)
	}
	name = newName()
	admin(t, http.MethodPost, "", manifest("other-label", name+".log.1", `{store: x, role: Log, seq: 1}`))
	if err := refusal(t, name, Options{Slots: minSlots}); !errors.Is(err, ipalloc.ErrMismatch) || !strings.Contains(err.Error(), "another store") {
		t.Error(err)
	}
	s := openAt(t, newName(), Options{Slots: minSlots})
	work(t, s, 1)
	admin(t, http.MethodPatch, s.name, `{"spec":{"version":2}}`)
	if err := refusal(t, s.name, Options{}); !errors.Is(err, ipalloc.ErrVersion) || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
	s = openAt(t, newName(), Options{Slots: minSlots})
	work(t, s, 1)
	admin(t, http.MethodPatch, slotName(s.name, s.rep.seq, s.slots), `{"spec":{"data":"AAAA"}}`)
	if err := refusal(t, s.name, Options{}); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Error(err)
	}
}

// manifest returns an object as a person would write it.
func manifest(store, name, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, labels: {%s: %s, %s: Log}}\nspec: %s\n", apiVersion, kind, name, nameLabel, store, roleLabel, spec)
}

// A label set by hand, or an object stored anew by the API server, changes resource versions and nothing else.
func TestLabelledByHand(t *testing.T) {
	s := openAt(t, newName(), Options{Slots: minSlots})
	work(t, s, 2)
	for seq := range uint64(minSlots) {
		admin(t, http.MethodPatch, slotName(s.name, seq, s.slots), `{"metadata":{"labels":{"by":"hand"}}}`)
	}
	admin(t, http.MethodPatch, s.name, `{"metadata":{"labels":{"by":"hand"}}}`)
	for i := range 2 * minSlots {
		if _, err := s.Commit(limited(t), []store.Op{put(fmt.Sprint("after", i), "", 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := contents(t, openAt(t, s.name, Options{})); len(got) != 3+2*minSlots {
		t.Errorf("%v", got)
	}
}

// A label taken off by hand, by which lists and watches find the object, is written back: by a process that watches, and by
// one that opens the store. Neither takes the object for deleted.
func TestLabelTakenOff(t *testing.T) {
	const off = `{"metadata":{"labels":{"` + nameLabel + `":null,"` + roleLabel + `":null}}}`
	for _, watching := range []bool{true, false} {
		s := openAt(t, newName(), Options{Slots: minSlots})
		work(t, s, 2)
		ctx, cancel := context.WithCancel(limited(t))
		events := make(chan error, 100)
		go func() {
			defer close(events)
			if watching {
				for _, err := range s.Watch(ctx, 2, "") {
					events <- err
				}
			}
		}()
		commit := func(key string) {
			if _, err := s.Commit(ctx, []store.Op{put(key, "", 0)}); err != nil {
				t.Fatal(err)
			}
			if err := <-events; err != nil {
				t.Fatal(err)
			}
		}
		commit("first")
		for _, name := range []string{slotName(s.name, s.rep.seq, s.slots), slotName(s.name, s.rep.seq+2, s.slots), s.name} {
			admin(t, http.MethodPatch, name, off)
		}
		if got := contents(t, openAt(t, s.name, Options{NoCreate: true})); len(got) < 3 {
			t.Errorf("%v", got)
		}
		for i := range 2 * minSlots {
			commit(fmt.Sprint("after", i))
		}
		s.settleSnapshot()
		labelled := 0
		for _, role := range []string{roleLog, roleHead} {
			if err := s.client.list(ctx, s.name, role, true, func(*object) error { labelled++; return nil }); err != nil {
				t.Error(err)
			}
		}
		if labelled != minSlots+1 {
			t.Errorf("watching %v: %d objects have their labels", watching, labelled)
		}
		cancel()
		for err := range events {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
}

// What is missing is named: the namespace, the store, the permission.
func TestMissing(t *testing.T) {
	server := sharedServer(t)
	config := configOf(server)
	config.Impersonate = rest.ImpersonationConfig{}
	_, err := Open(limited(t), config, "nowhere", "pods", Options{})
	if !errors.Is(err, ipalloc.ErrNotFound) || !strings.Contains(err.Error(), `no namespace "nowhere"`) {
		t.Error(err)
	}
	if err := refusal(t, newName(), Options{NoCreate: true}); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Error(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	if _, err := Open(limited(t), config, "default", "pods", Options{}); err == nil || !strings.Contains(err.Error(), "forbidden") || store.Retryable(err) {
		t.Error(err)
	}
	f := &faults{}
	untrusting := configOf(server)
	untrusting.Insecure = false
	f.use(untrusting)
	if _, err := Open(limited(t), untrusting, "default", "pods", Options{}); !untrusted(err) || store.Retryable(err) || f.n != 1 {
		t.Errorf("a certificate of nobody, after %d requests: %v", f.n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, &rest.Config{Host: "http://127.0.0.1:1"}, "default", "pods", Options{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") || !store.Retryable(err) {
		t.Errorf("nothing listens: %v", err)
	}
	for _, tt := range []struct {
		namespace, name string
		o               Options
	}{{"", "pods", Options{}}, {"default", "", Options{}}, {"default", "a.b", Options{}}, {"default", "a", Options{Slots: 3}}, {"default", "a", Options{Slots: 1025}}} {
		if _, err := Open(limited(t), config, tt.namespace, tt.name, tt.o); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if _, err := Open(limited(t), nil, "default", "a", Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}

// The role in config/rbac.yaml, which all tests run under, is enough for the snapshots that a store writes and removes.
func TestRole(t *testing.T) {
	ctx := limited(t)
	s := openAt(t, newName(), Options{Slots: minSlots})
	work(t, s, 2*minSlots)
	s.settleSnapshot()
	for ev, err := range s.Watch(ctx, 2*minSlots-1, "k") {
		if err != nil || len(ev.Changes) != 1 {
			t.Errorf("%+v, %v", ev, err)
		}
		break
	}
	var parts int
	if err := s.client.list(ctx, s.name, roleSnapshot, true, func(*object) error { parts++; return nil }); err != nil || parts != 1 {
		t.Errorf("%d parts of snapshots are there, %v", parts, err)
	}
}

// A process that slept while the log went round several times reads the snapshot, shows the present state, and does not
// write over a commit that it has not seen.
func TestFarBehind(t *testing.T) {
	for _, first := range []string{"read", "commit", "watch"} {
		t.Run(first, func(t *testing.T) {
			ctx := limited(t)
			s := openAt(t, newName(), Options{Slots: minSlots})
			late := openAt(t, s.name, Options{})
			want := work(t, s, 5*minSlots)
			switch first {
			case "commit":
				if rev, err := late.Commit(ctx, []store.Op{put("late", "", 0)}); err != nil || rev != 5*minSlots+1 {
					t.Errorf("%d, %v", rev, err)
				}
				want["late"] = ""
			case "watch":
				for ev, err := range late.Watch(ctx, 0, "k") {
					if !errors.Is(err, ipalloc.ErrOutOfRange) {
						t.Errorf("%+v, %v", ev, err)
					}
				}
			}
			if got := contents(t, late); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			if got := contents(t, s); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// Snapshots of several parts are written, read, and taken away while processes read and write: every process that opens the
// store sees the result of a whole number of commits.
func TestCompactionDuringReads(t *testing.T) {
	ctx := limited(t)
	s := openAt(t, newName(), Options{Slots: 8})
	pad := strings.Repeat("x", 300<<10)
	for i := range 6 { // 1.8 MB: 3 parts
		if _, err := s.Commit(ctx, []store.Op{put(fmt.Sprint("pad", i), pad, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	stop, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for w := range 2 {
		group.Go(func() {
			mine := openAt(t, s.name, Options{})
			for i := 0; stop.Err() == nil || i < 8; i++ {
				v := fmt.Sprint(w, i)
				if _, err := mine.Commit(ctx, []store.Op{put("a", v, store.AnyRevision), put("z", v, store.AnyRevision)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 5 {
		recs, _, err := openAt(t, s.name, Options{NoCreate: true}).List(ctx, store.Range{})
		if err != nil || len(recs) < 6 || recs[0].Key == "a" && (recs[len(recs)-1].Value != recs[0].Value || recs[1].Value != pad) {
			t.Errorf("%d records, %v", len(recs), err)
		}
	}
	cancel()
	group.Wait()
	s.settleSnapshot()
	if head, err := s.client.get(ctx, s.name); err != nil || head.Spec.Snapshot.Parts < 3 {
		t.Errorf("%+v, %v", head.Spec.Snapshot, err)
	}
}

// Two processes that contend for every place in the log both get on, and each count is counted once.
func TestContention(t *testing.T) {
	ctx := limited(t)
	const each = 40
	name := newName()
	openAt(t, name, Options{Slots: 16})
	var group sync.WaitGroup
	for range 2 {
		s := openAt(t, name, Options{})
		group.Go(func() {
			for i := 0; i < each; {
				recs, err := s.Get(ctx, nil, "n")
				if err != nil {
					t.Error(err)
					return
				}
				_, err = s.Commit(ctx, []store.Op{put("n", recs[0].Value+"x", recs[0].Rev)})
				if err == nil {
					i++
				} else if !errors.Is(err, ipalloc.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if got := contents(t, openAt(t, name, Options{})); len(got["n"]) != 2*each {
		t.Errorf("counted to %d, want %d", len(got["n"]), 2*each)
	}
}
