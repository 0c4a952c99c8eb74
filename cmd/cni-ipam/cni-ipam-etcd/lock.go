package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/plugin"
)

// locker takes locks in the cluster, as keys with a lease under the prefix of the store.
type locker struct {
	client *clientv3.Client
	prefix string
}

// retryTime is how long a call waits before it asks for a lock again.
const retryTime = 50 * time.Millisecond

// lock waits until no live call holds the lock of that name. A lock whose process has died is taken over at once on its own
// machine, and elsewhere when its lease ends.
func (l locker) lock(ctx context.Context, name string) (unlock func() error, err error) {
	lease, err := l.client.Grant(ctx, int64(plugin.LeaseTime/time.Second))
	if err != nil {
		return nil, err
	}
	unlock = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, err := l.client.Revoke(ctx, lease.ID)
		return err
	}
	key, me := l.prefix+"lock/"+name, identity(os.Getpid())
	for {
		got, err := l.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, me, clientv3.WithLease(lease.ID))).Else(clientv3.OpGet(key)).Commit()
		switch {
		case err != nil:
			return unlock, err
		case got.Succeeded:
			return unlock, nil
		}
		held := got.Responses[0].GetResponseRange().Kvs[0]
		if dead(string(held.Value)) {
			_, err = l.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", held.ModRevision)).Then(clientv3.OpDelete(key)).Commit()
			if err != nil {
				return unlock, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return unlock, ctx.Err()
		case <-time.After(retryTime):
		}
	}
}

// identity names a process of this machine: the boot, the space of process ids, the id, and when it was started. It is empty
// where the system does not tell.
func identity(pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	const started = 22 - 3 // the fields after the name, which may hold spaces
	_, after, _ := strings.Cut(string(stat), ") ")
	f := append(strings.Fields(after), make([]string, started+1)...)
	return fmt.Sprintf("%s %s %d %s", strings.TrimSpace(string(boot)), space, pid, f[started])
}

// dead reports whether the process of an identity lived on this machine and has ended.
func dead(id string) bool {
	f := strings.Fields(id)
	pid := 0
	if len(f) != 4 {
		return false
	}
	if _, err := fmt.Sscan(f[2], &pid); err != nil {
		return false
	}
	now := strings.Fields(identity(pid))
	return len(now) >= 3 && now[0] == f[0] && now[1] == f[1] && (len(now) == 3 || now[3] != f[3])
}
