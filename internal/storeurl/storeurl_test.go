package storeurl

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Location{
		"memory":                    {Kind: "memory"},
		"bolt:///var/lib/ipam.db":   {Kind: "bolt", Path: "/var/lib/ipam.db"},
		"bolt://ipam.db":            {Kind: "bolt", Path: "ipam.db"},
		"etcd://a:2379/ipam":        {Kind: "etcd", Endpoints: []string{"a:2379"}, Prefix: "/ipam/"},
		"kube://default/ipam":       {Kind: "kube", Namespace: "default", Name: "ipam"},
		"sqlite:///var/lib/i.db":    {Kind: "sqlite", Path: "/var/lib/i.db"},
		"postgres://u:p@h:1/d?x=y":  {Kind: "postgres"},
		"etcd://a:1,b:2/ipam/pods/": {Kind: "etcd", Endpoints: []string{"a:1", "b:2"}, Prefix: "/ipam/pods/"},
	} {
		want.DSN = text
		if got, err := Parse("--store", text); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":               "--store : a store is needed: bolt:///path/of/file, etcd://host:port/prefix or kube://namespace/name",
		"x.db":           "--store x.db: a store is needed: bolt:///path/of/file, etcd://host:port/prefix or kube://namespace/name",
		"redis://x":      "--store redis://x: no such kind of store; the kinds are bolt, etcd, kube",
		"memory":         "--store memory: no such kind of store; the kinds are bolt, etcd, kube",
		"bolt://":        "--store bolt://: the path of a file is missing, as in bolt:///var/lib/ipam.db",
		"etcd:///x":      "--store etcd:///x: a host is missing, as in etcd://10.0.0.1:2379/ipam",
		"etcd://x:2379/": "--store etcd://x:2379/: the prefix of the keys is missing, as in etcd://10.0.0.1:2379/ipam",
		"kube://ipam":    "--store kube://ipam: a namespace and a name are needed, as in kube://default/ipam",
	} {
		if _, err := Parse("--store", text, "bolt", "etcd", "kube"); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	if _, err := Parse("--store", "memory://x"); err == nil || err.Error() != "--store memory://x: memory has no address" {
		t.Error(err)
	}
}

// No message shows a password, whatever is wrong with the name that holds it.
func TestNoMessageHasAPassword(t *testing.T) {
	const password = "S3cret"
	for _, text := range []string{
		"postgres://u:S3cret@h/d", "postgresql://u:S3cret@h/d", "Postgres://u:S3cret@h/d", "postgres:/u:S3cret@h/d", "mysql://u:S3cret@h/d", "u:S3cret@h/d",
		"postgres://u:S3cret/x@h/d", "postgres://u:S3cret@x@h/d", "postgres://h/d?password=S3cret", "postgres://h/d?sslpassword=S3cret&x=y",
		"etcd://root:S3cret@h:2379", "etcd://root:S3cret@h:2379/ipam", "kube://u:S3cret@x",
	} {
		l, err := Parse("--store", text)
		said := Redact(text)
		if err != nil {
			said += err.Error()
		} else {
			said += fmt.Sprint(l)
		}
		if strings.Contains(said, password) || !strings.Contains(said, "xxxxx") {
			t.Errorf("%s: %s", text, said)
		}
	}
	for _, text := range []string{"bolt:///var/lib/ipam.db", "postgres://u@h:5432/d", "etcd://h:2379/ipam", "memory"} {
		if got := Redact(text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}
