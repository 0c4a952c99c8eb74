package kubestore

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A snapshot whose writing failed is continued by the next compaction, with the parts that are there. Nothing is left behind.
func TestSnapshotIsContinued(t *testing.T) {
	f := &faults{}
	s := openAt(t, newName(), Options{Slots: 16}, f.use)
	commit := func(key, value string) {
		if _, err := s.Commit(limited(t), []store.Op{put(key, value, 0)}); err != nil {
			t.Fatal(err)
		}
		s.settleSnapshot()
	}
	for i := range 5 { // 2 MB: 3 parts
		commit(fmt.Sprint("pad", i), strings.Repeat("x", 400<<10))
	}
	posts := 0
	f.mu.Lock()
	f.fail = func(_ int, r *http.Request) fault {
		if r.Method == http.MethodPost {
			switch posts++; posts {
			case 2: // is repeated: a part that the head names and that is not there would end the store
				return vying
			case 4:
				return denied
			}
		}
		return none
	}
	f.mu.Unlock()
	for i := range 3 {
		commit(fmt.Sprint("k", i), "")
	}
	if s.draft == nil || s.draft.done != 2 || s.draft.ref.Parts != 3 || posts != 4 {
		t.Fatalf("%+v after %d requests", s.draft, posts)
	}
	begun := *s.draft.ref
	commit("next", "")
	head, err := s.client.get(limited(t), s.name)
	if err != nil || head.Spec.Snapshot == nil || *head.Spec.Snapshot != begun || posts != 5 || s.draft != nil {
		t.Errorf("%+v after %d requests, %v; want %+v", head.Spec.Snapshot, posts, err, begun)
	}
	parts := 0
	if err := s.client.list(limited(t), s.name, roleSnapshot, true, func(*object) error { parts++; return nil }); err != nil || parts != 3 {
		t.Errorf("%d parts are there, %v", parts, err)
	}
	if got := contents(t, openAt(t, s.name, Options{})); len(got) != 9 {
		t.Errorf("%d records", len(got))
	}
}

// A log that is full waits for the running snapshot, without a limit, and writes none of its own beside it.
func TestFullLogWaitsForTheSnapshot(t *testing.T) {
	f := &faults{}
	s := openAt(t, newName(), Options{Slots: minSlots}, f.use)
	hold, full := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	f.fail = func(_ int, r *http.Request) fault {
		if r.Method == http.MethodPost {
			f.mu.Unlock()
			<-hold // the API server takes its time
			f.mu.Lock()
		}
		return none
	}
	f.mu.Unlock()
	go func() {
		for { // until the log is full and a call waits
			s.mu.Lock()
			ready := s.compacting != nil && s.rep.seq == s.snapped+uint64(s.slots)
			s.mu.Unlock()
			if ready && s.queue.Waiting() > 0 {
				close(full)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	done := make(chan error, 8)
	for i := range 8 {
		go func() {
			for k := range 2 {
				_, err := s.Commit(limited(t), []store.Op{put(fmt.Sprintf("k%d-%d", i, k), strings.Repeat("x", 200<<10), 0)})
				if done <- err; err != nil {
					return
				}
			}
		}()
	}
	<-full
	close(hold)
	for range 16 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s.settleSnapshot()
	ids := make(map[string]bool)
	err := s.client.list(limited(t), s.name, roleSnapshot, true, func(o *object) error {
		p, _ := parsePart(s.name, o.Metadata.Name)
		ids[p.ID] = true
		return nil
	})
	if err != nil || len(ids) != 1 {
		t.Errorf("parts of %d snapshots are there, %v", len(ids), err)
	}
}

// A commit that would make the store larger than a snapshot may be is refused; a smaller one, and a removal, are not.
func TestRoomOfTheStore(t *testing.T) {
	ctx := limited(t)
	s := openAt(t, newName(), Options{Slots: minSlots})
	s.room = 1 << 20
	pad := strings.Repeat("x", 300<<10)
	for i := range 3 {
		if _, err := s.Commit(ctx, []store.Op{put(fmt.Sprint("pad", i), pad, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, []store.Op{put("more", pad, 0)}); !errors.Is(err, ipalloc.ErrLimit) || store.Retryable(err) || !strings.Contains(err.Error(), "at most 1048576") {
		t.Error(err)
	}
	other := openAt(t, s.name, Options{}) // which counts from the snapshot and the log
	other.room = s.room
	for _, step := range []struct {
		op store.Op
		ok bool
	}{
		{put("more", pad, 0), false}, {put("small", "x", 0), true}, {put("pad1", pad[1:], store.AnyRevision), true},
		{store.Op{Kind: store.Delete, Key: "pad0", Expect: store.AnyRevision}, true}, {put("more", pad, 0), true}, {put("again", pad, 0), false},
	} {
		if _, err := other.Commit(ctx, []store.Op{step.op}); (err == nil) != step.ok {
			t.Errorf("%v %s: %v", step.op.Kind, step.op.Key, err)
		}
	}
	if s, o := contents(t, s), contents(t, other); len(s) != len(o) {
		t.Errorf("%d records and %d", len(s), len(o))
	}
}
