package storeurl

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Location{
		"memory":                                {Kind: "memory"},
		"bolt:///var/lib/ipam.db":               {Kind: "bolt", Path: "/var/lib/ipam.db"},
		"bolt://ipam.db":                        {Kind: "bolt", Path: "ipam.db"},
		"etcd://a:2379/ipam":                    {Kind: "etcd", Endpoints: []string{"a:2379"}, Prefix: "/ipam/"},
		"etcd://a:2379/ipam?cacert=/x/y&user=u": {Kind: "etcd", Endpoints: []string{"a:2379"}, Prefix: "/ipam/"},
		"kube://default/ipam":                   {Kind: "kube", Namespace: "default", Name: "ipam"},
		"sqlite:///var/lib/i.db":                {Kind: "sqlite", Path: "/var/lib/i.db"},
		"postgres://u:p@h:1/d?x=y":              {Kind: "postgres"},
		"etcd://a:1,b:2/ipam/pods/":             {Kind: "etcd", Endpoints: []string{"a:1", "b:2"}, Prefix: "/ipam/pods/"},
	} {
		want.DSN = text
		if text == "etcd://a:2379/ipam?cacert=/x/y&user=u" {
			want.Params = url.Values{"cacert": {"/x/y"}, "user": {"u"}}
		}
		if got, err := Parse("--store", text); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                "--store : a store is needed: bolt:///path/of/file, etcd://host:port/prefix or kube://namespace/name",
		"x.db":            "--store x.db: a store is needed: bolt:///path/of/file, etcd://host:port/prefix or kube://namespace/name",
		"redis://x":       "--store redis://x: no such kind of store; the kinds are bolt, etcd, kube",
		"memory":          "--store memory: no such kind of store; the kinds are bolt, etcd, kube",
		"bolt://":         "--store bolt://: the path of a file is missing, as in bolt:///var/lib/ipam.db",
		"etcd:///x":       "--store etcd:///x: a host is missing, as in etcd://10.0.0.1:2379/ipam",
		"etcd://x:2379/":  "--store etcd://x:2379/: the prefix of the keys is missing, as in etcd://10.0.0.1:2379/ipam",
		"etcd://x/y?ca=z": "--store etcd://x/y?ca=z: there is no parameter \"ca\"; the parameters are cacert, cert, key, user, password-file, insecure-transport",
		"kube://ipam":     "--store kube://ipam: a namespace and a name are needed, as in kube://default/ipam",
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

// A file of SQLite's may have any name.
func TestSQLiteName(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/ipam.sqlite": "file:/var/lib/ipam.sqlite?mode=ro&a=b", "a b.db": "file:a%20b.db?mode=ro&a=b",
		"/x?y#z%41.db": "file:/x%3Fy%23z%2541.db?mode=ro&a=b",
	} {
		if got := SQLite(path, "mode=ro", "a=b"); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := SQLite("x"); got != "file:x" {
		t.Error(got)
	}
}
