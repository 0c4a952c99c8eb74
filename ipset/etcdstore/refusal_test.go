package etcdstore

import (
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	prefix := newPrefix()
	var rows []refusal.Row
	row := func(call, what string, err, is error, op, field string) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	_, err := Open(limited(t), nil, prefix, Options{})
	row("Open", "nil", err, ipalloc.ErrInvalid, "open", "client")
	for _, p := range []string{"", "/", "/x", strings.Repeat("x", maxPrefix) + "/"} {
		_, err = Open(limited(t), client, p, Options{})
		row("Open", "prefix "+p, err, ipalloc.ErrInvalid, "open", "prefix")
	}
	for field, o := range map[string]Options{"MaxOps": {MaxOps: 2}, "MaxBytes": {MaxBytes: 100}} {
		_, err = Open(limited(t), client, prefix, o)
		row("Open", field, err, ipalloc.ErrInvalid, "open", "Options."+field)
	}
	_, err = Open(limited(t), client, prefix, Options{NoCreate: true})
	row("Open", "nothing there", err, ipalloc.ErrNotFound, "open", "")
	s := openIn(t, client, prefix, Options{})
	_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put}})
	row("Store.Commit", "no key", err, ipalloc.ErrInvalid, "commit", "ops")
	_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Value: strings.Repeat("v", 2<<20)}})
	row("Store.Commit", "large", err, ipalloc.ErrLimit, "commit", "")

	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	closed := func(call, op string, err error) { row(call, "closed", err, ipalloc.ErrClosed, op, "") }
	_, err = s.Get(limited(t), nil, "k")
	closed("Store.Get", "get", err)
	_, _, err = s.List(limited(t), store.Range{})
	closed("Store.List", "list", err)
	_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k"}})
	closed("Store.Commit", "commit", err)
	refusal.Check(t, "etcdstore", rows)
}
