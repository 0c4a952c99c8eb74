package kubestore

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	refusals "github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	config := configOf(sharedServer(t))
	var rows []refusals.Row
	row := func(call, what string, err, is error, op, field string) {
		rows = append(rows, refusals.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	open := func(what string, config *rest.Config, namespace, name string, o Options, is error, field string) {
		_, err := Open(limited(t), config, namespace, name, o)
		row("Open", what, err, is, "open", field)
	}
	open("nil", nil, "default", "x", Options{}, ipalloc.ErrInvalid, "config")
	open("no URL", &rest.Config{Host: "::"}, "default", "x", Options{}, ipalloc.ErrInvalid, "config")
	open("no namespace", config, "", "x", Options{}, ipalloc.ErrInvalid, "namespace")
	for _, name := range []string{"", "A", "a.b", "-a", strings.Repeat("x", 51)} {
		open("name "+name, config, "default", name, Options{}, ipalloc.ErrInvalid, "name")
	}
	for _, slots := range []int{-1, 3, 1025} {
		open("slots", config, "default", "x", Options{Slots: slots}, ipalloc.ErrInvalid, "Options.Slots")
	}
	open("nothing there", config, "default", newName(), Options{NoCreate: true}, ipalloc.ErrNotFound, "")

	name := newName()
	s := openAt(t, name, Options{Slots: 4})
	_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put}})
	row("Store.Commit", "no key", err, ipalloc.ErrInvalid, "commit", "ops")
	_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Value: strings.Repeat("v", maxBytes+1)}})
	row("Store.Commit", "large", err, ipalloc.ErrLimit, "commit", "")
	_, err = s.Get(limited(t), nil, "", "k")
	row("Store.Get", "never refuses", err, nil, "", "")
	_, _, err = s.List(limited(t), store.Range{From: "z", To: "a", Limit: -1})
	row("Store.List", "never refuses", err, nil, "", "")
	refusals.Check(t, "kubestore", rows)
}
