package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// newEtcd starts a server for a test.
func newEtcd(t *testing.T) *etcd {
	e := must(clients(servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})))
	t.Cleanup(func() { e.client.Close() })
	return e
}

// The works on etcd run, and the requests of one caller are as many as the engine makes calls.
func TestEtcdWorksRun(t *testing.T) {
	e := newEtcd(t)
	for _, w := range e.works().List {
		for _, c := range w.Cells {
			j := c.Open()
			for range 2 {
				if j.Reset != nil {
					j.Reset()
				}
				j.Run(max(j.N, j.Grain, 2))
			}
		}
	}
	facts := e.counts()
	if one := facts[0].Values; one[ours] != 2 || one[theirs] < 12 {
		t.Errorf("requests of one caller: %v", one)
	}
	if many := facts[1].Values; many[ours] > 1 || many[theirs] < 12 {
		t.Errorf("requests of 32 callers: %v", many)
	}
}

func TestParseRequests(t *testing.T) {
	n, err := parseRequests(strings.NewReader(`# HELP grpc_server_handled_total Total
grpc_server_handled_total{grpc_code="OK",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 12
grpc_server_handled_total{grpc_code="Canceled",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1
grpc_server_handled_total{grpc_code="OK",grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1.5e+06
grpc_server_handled_total{grpc_code="OK",grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 3
other{grpc_method="Txn",grpc_service="etcdserverpb.KV"} 7
`))
	if err != nil || len(n) != 2 || n["Range"] != 13 || n["Txn"] != 1.5e6 {
		t.Error(n, err)
	}
	if _, err := parseRequests(strings.NewReader(`grpc_server_handled_total{grpc_method="Txn",grpc_service="etcdserverpb.KV"} x`)); err == nil {
		t.Error("a counter that is no number is accepted")
	}
}

// The backend in memory answers as Calico's etcd backend does.
func TestBackendsAnswerAlike(t *testing.T) {
	e := newEtcd(t)
	want := transcript(e.calico)
	got := transcript(newBackend())
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d: %s, the etcd backend: %s", i, got[i], want[i])
		}
	}
}

// transcript is what a backend answers to calls of all kinds.
func transcript(b bapi.Client) (lines []string) {
	note := func(op string, kvp *model.KVPair, err error) {
		value := "nothing"
		if kvp != nil && kvp.Value != nil {
			value = fmt.Sprintf("%+v", reflect.Indirect(reflect.ValueOf(kvp.Value)).Interface())
		}
		kind := "no error"
		if err != nil {
			for kind = reflect.TypeOf(err).String(); errors.Unwrap(err) != nil; err = errors.Unwrap(err) {
			}
		}
		lines = append(lines, op+": "+kind+", "+value)
	}
	list := func(op string, l model.ListInterface) {
		got, err := b.List(bg, l, "")
		s := op
		if err == nil {
			for _, kvp := range got.KVPairs {
				s += " " + kvp.Key.String()
			}
		}
		lines = append(lines, s)
	}
	handle := func(n int) *model.KVPair {
		return &model.KVPair{Key: model.IPAMHandleKey{HandleID: "h"}, Value: &model.IPAMHandle{Block: map[string]int{"10.0.0.0/26": n}}}
	}
	affinity := func(host, block string) *model.KVPair {
		return &model.KVPair{Key: model.BlockAffinityKey{Host: host, CIDR: cnet.MustParseNetwork(block)}, Value: &model.BlockAffinity{State: model.StatePending}}
	}
	get := func(op string, k model.Key) {
		kvp, err := b.Get(bg, k, "")
		if kvp != nil {
			kvp.Value = nil // a copy of it has been noted before
		}
		note(op, kvp, err)
	}
	h := handle(1)
	kvp, err := b.Get(bg, h.Key, "")
	note("get none", kvp, err)
	kvp, err = b.Update(bg, &model.KVPair{Key: h.Key, Value: h.Value, Revision: "1"})
	note("update none", kvp, err)
	kvp, err = b.Delete(bg, h.Key, "")
	note("delete none", kvp, err)
	kvp, err = b.Delete(bg, h.Key, "1")
	note("delete none at a revision", kvp, err)
	created, err := b.Create(bg, h)
	note("create", created, err)
	old := created.Revision
	kvp, err = b.Create(bg, handle(2))
	note("create again", kvp, err)
	kvp, err = b.Update(bg, handle(3))
	note("update at no revision", kvp, err)
	next := handle(4)
	next.Revision = old
	kvp, err = b.Update(bg, next)
	note("update", kvp, err)
	stale := handle(5)
	stale.Revision = old
	kvp, err = b.Update(bg, stale)
	note("update at an old revision", kvp, err)
	kvp, err = b.Delete(bg, h.Key, old)
	note("delete at an old revision", kvp, err)
	kvp, err = b.Get(bg, h.Key, "")
	note("get", kvp, err)
	kvp, err = b.DeleteKVP(bg, kvp)
	note("delete", kvp, err)
	get("get what is gone", h.Key)
	kvp, err = b.Apply(bg, handle(6))
	note("apply to none", kvp, err)
	kvp, err = b.Apply(bg, handle(7))
	note("apply", kvp, err)
	for _, a := range []*model.KVPair{affinity("a", "10.0.0.64/26"), affinity("a", "10.0.0.128/26"), affinity("ab", "10.0.0.0/26"), affinity("a", "fd00::/122")} {
		_, err := b.Create(bg, a)
		note("claim", a, err)
	}
	n := libapiv3.NewNode()
	n.Name = "a"
	_, err = b.Apply(bg, &model.KVPair{Key: model.ResourceKey{Kind: libapiv3.KindNode, Name: "a"}, Value: n})
	note("node", nil, err)
	get("get a node", model.ResourceKey{Kind: libapiv3.KindNode, Name: "a"})
	get("get a host", model.IPAMHostKey{Host: "a"})
	list("blocks of a", model.BlockAffinityListOptions{Host: "a"})
	list("IPv4 blocks of a", model.BlockAffinityListOptions{Host: "a", IPVersion: 4})
	list("blocks of all", model.BlockAffinityListOptions{})
	list("blocks", model.BlockListOptions{})
	list("handles", model.IPAMHandleListOptions{})
	return lines
}
