package storeurl

import (
	"net/url"
	"reflect"
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
		"bolt://a:b@c/d":  "--store bolt://a:xxxxx@c/d: a file has no user; write ./ before a path that begins so",
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

// What holds no password is shown as it was written. TestNoMessageHasAPassword of ipamctl has the forms of those that hold one.
func TestRedact(t *testing.T) {
	for _, text := range []string{"bolt:///var/lib/ipam.db", "postgres://u@h:5432/d", "etcd://h:2379/ipam?user=u&password-file=/f", "memory", "bolt://./a@b/d", "a@b"} {
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
