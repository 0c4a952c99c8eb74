package kubestore

import (
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// What ends a process, and what does not.
func TestPast(t *testing.T) {
	storetest.TestPast(t, func(t *testing.T) storetest.Past {
		name := newName()
		var opened []*Store
		open := func(t *testing.T) store.Store {
			s := openAt(t, name, Options{Slots: 8})
			opened = append(opened, s)
			return s
		}
		wipe := func(t *testing.T) {
			s := openAt(t, name, Options{Slots: 8})
			for _, role := range []string{roleHead, roleLog, roleSnapshot} {
				if err := s.client.list(limited(t), name, role, true, func(o *object) error { return s.client.delete(limited(t), o.Metadata.Name) }); err != nil {
					t.Fatal(err)
				}
			}
		}
		return storetest.Past{Open: open, Same: map[string]func(*testing.T){
			"the log went round": func(t *testing.T) {
				s := open(t)
				for range 40 {
					if _, err := s.Commit(limited(t), []store.Op{put("round", "", store.AnyRevision)}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"API server restarted": func(t *testing.T) {
				server := sharedServer(t)
				server.Kill()
				if err := server.Start(limited(t)); err != nil {
					t.Fatal(err)
				}
			},
			"idle": func(*testing.T) { time.Sleep(silence + 100*time.Millisecond) },
			"idle for a day": func(*testing.T) {
				for _, s := range opened {
					s.client.last.Add(-int64(24 * time.Hour))
				}
			},
		}, Other: map[string]func(*testing.T){
			"wiped":    wipe,
			"restored": func(t *testing.T) { wipe(t); openAt(t, name, Options{Slots: 8}) },
		}}
	})
}
