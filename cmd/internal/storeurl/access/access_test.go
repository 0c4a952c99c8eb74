package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/internal/test/servers"
)

func parse(t *testing.T, name string) *storeurl.Location {
	t.Helper()
	l, err := storeurl.Parse("--store", name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What the name of an etcd cluster lacks comes from the variables of etcdctl; a password never travels in clear unasked.
func TestEtcd(t *testing.T) {
	dir := t.TempDir()
	files, err := servers.NewTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("S3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair := "&cert=" + files.Cert + "&key=" + files.Key
	for _, c := range []struct {
		name, env            string
		tls, pair            bool
		user, password, want string
	}{
		{name: ""},
		{name: "?cacert=" + files.CA, tls: true},
		{name: "?cacert=" + files.CA + pair + "&user=u&password-file=" + secret, tls: true, pair: true, user: "u", password: "S3cret"},
		{env: "ETCDCTL_CACERT=" + files.CA + " ETCDCTL_USER=u:p", tls: true, user: "u", password: "p"},
		{env: "ETCDCTL_CACERT=" + files.CA + " ETCDCTL_USER=u ETCDCTL_PASSWORD=q", tls: true, user: "u", password: "q"},
		{name: "?user=v", env: "ETCDCTL_CACERT=" + files.CA + " ETCDCTL_USER=u:p", tls: true, user: "v"},
		{name: "?user=u&insecure-transport=true&password-file=" + secret, user: "u", password: "S3cret"},
		{name: "?user=u&password-file=" + secret, want: "needs TLS"},
		{env: "ETCDCTL_USER=u:p", want: "needs TLS"},
		{name: "?cert=" + files.Cert, want: "cert and key go together"},
		{name: "?cacert=" + secret, want: "no certificate"},
		{name: "?cacert=" + dir + "/none", want: "no such file"},
		{name: "?cacert=" + files.CA + "&user=u&password-file=" + dir + "/none", want: "no such file"},
	} {
		env := map[string]string{}
		for _, kv := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		got, err := OfEtcd(parse(t, "etcd://h:2379/ipam"+c.name), func(k string) string { return env[k] })
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "S3cret") {
				t.Errorf("%s %s: %v, want %s", c.name, c.env, err, c.want)
			}
			continue
		}
		if err != nil || (got.TLS != nil) != c.tls || c.pair != (c.tls && len(got.TLS.Certificates) == 1) || got.User != c.user || got.Password != c.password {
			t.Errorf("%s %s: %+v, %v", c.name, c.env, got, err)
		}
	}
}

// The password of a file goes into the name that the driver gets, and into no other text.
func TestPostgres(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a/b@c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"postgres://u@h:5432/d?sslmode=verify-full":                         "postgres://u@h:5432/d?sslmode=verify-full",
		"postgres://u@h:5432/d?password-file=" + secret:                     "postgres://u:a%2Fb%40c@h:5432/d",
		"postgres://u@h/d?sslmode=verify-full&password-file=" + secret:      "postgres://u:a%2Fb%40c@h/d?sslmode=verify-full",
		"postgres://u@h/d?sslmode=require&sslrootcert=x&password=p&a%20b=c": "postgres://u@h/d?sslmode=require&sslrootcert=x&password=p&a%20b=c",
	} {
		l := parse(t, name)
		if got, err := Postgres(l); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if strings.Contains(l.String(), "a/b@c") {
			t.Error(l)
		}
	}
	if _, err := Postgres(parse(t, "postgres://u@h/d?password-file="+secret+"x")); err == nil {
		t.Error("a file that does not exist is no password")
	}
}
