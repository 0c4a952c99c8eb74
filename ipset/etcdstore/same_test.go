package etcdstore

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// What ends a process, and what does not.
func TestPast(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	client := connect(t, c.Endpoints())
	storetest.TestPast(t, func(t *testing.T) storetest.Past {
		prefix := newPrefix()
		open := func(t *testing.T) store.Store { return openIn(t, client, prefix, Options{}) }
		remove := func(what string) func(*testing.T) {
			return func(t *testing.T) {
				if _, err := client.Delete(limited(t), prefix+what, clientv3.WithPrefix()); err != nil {
					t.Fatal(err)
				}
			}
		}
		compact := func(t *testing.T) {
			rev := mustCommit(t, openIn(t, client, prefix, Options{}), "compacted", "")
			if _, err := client.Compact(limited(t), int64(rev)); err != nil {
				t.Fatal(err)
			}
		}
		return storetest.Past{Open: open, Many: open, Same: map[string]func(*testing.T){
			"lanes removed":                func(t *testing.T) { remove(pastName)(t); mustCommit(t, openIn(t, client, prefix, Options{}), "k", "") },
			"compaction":                   compact,
			"lanes removed and compaction": func(t *testing.T) { remove(pastName)(t); compact(t) },
			"member comes back": func(t *testing.T) {
				c.Members()[0].Kill()
				if err := c.Start(limited(t)); err != nil {
					t.Fatal(err)
				}
			},
		}, Other: map[string]func(*testing.T){
			"wiped":    remove(""),
			"restored": func(t *testing.T) { remove("")(t); openIn(t, client, prefix, Options{}) },
		}}
	})
}
