package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/cmd/internal/storeurl/access"
	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// An etcd that asks for certificates, a user and a password lets the program in, and no one who lacks one of these.
func TestEtcdWithTLS(t *testing.T) {
	dir := t.TempDir()
	files := must[*servers.TLS](t)(servers.NewTLS(dir))
	files.ClientAuth = true
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, TLS: files})
	at := c.Members()[0].ClientAddress()
	certificates := "cacert=" + files.CA + "&cert=" + files.ClientCert + "&key=" + files.ClientKey
	name := "etcd://" + at + "/ipam?" + certificates
	let := must[access.Etcd](t)(access.OfEtcd(must[*storeurl.Location](t)(storeurl.Parse("", name)), func(string) string { return "" }))
	client := must[*clientv3.Client](t)(clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), TLS: let.TLS}))
	defer client.Close()
	ctx := t.Context()
	must[*clientv3.AuthUserAddResponse](t)(client.UserAdd(ctx, "root", "S3cret"))
	must[*clientv3.AuthUserGrantRoleResponse](t)(client.UserGrantRole(ctx, "root", "root"))
	must[*clientv3.AuthEnableResponse](t)(client.AuthEnable(ctx))
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("S3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"IPAMCTL_STORE": name + "&user=root"}
	if status, _, stderr := call(t, env, "pool", "add", "pods", "10.1.0.0/24", "--password-file", secret); status != exitOK {
		t.Fatal(stderr)
	}
	for _, e := range []map[string]string{
		{"IPAMCTL_STORE": name + "&user=root&password-file=" + secret},
		{"IPAMCTL_STORE": "etcd://" + at + "/ipam", "ETCDCTL_CACERT": files.CA, "ETCDCTL_CERT": files.ClientCert, "ETCDCTL_KEY": files.ClientKey, "ETCDCTL_USER": "root:S3cret"},
	} {
		if status, out, stderr := call(t, e, "pool", "list", "-o", "name"); status != exitOK || out != "pods\n" {
			t.Errorf("%v: %s", e, stderr)
		}
	}
	for _, c := range []struct {
		name, password string
		status         int
	}{{"etcd://" + at + "/ipam", "", exitUnavailable}, {name, "", exitRefused}, {name + "&user=root", "wrong", exitRefused}, {"etcd://" + at + "/ipam?user=root", "S3cret", exitUsage}} {
		env := map[string]string{"IPAMCTL_STORE": c.name, "ETCDCTL_PASSWORD": c.password}
		if status, _, stderr := call(t, env, "pool", "list", "--timeout", "2s"); status != c.status || strings.Contains(stderr, "S3cret") {
			t.Errorf("%s: status %d, want %d: %s", c.name, status, c.status, stderr)
		}
	}
}

// No message shows a password, whatever is wrong with the name of the store that holds it.
func TestNoMessageHasAPassword(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"postgresql://u:S3cret@127.0.0.1:1/d", "Postgres://u:S3cret@h/d", "postgres:/u:S3cret@h/d", "mysql://u:S3cret@h/d", "redis://:S3cret@h", "kube://u:S3cret@h/d",
		"etcd://root:S3cret@127.0.0.1:1", "etcd://root:S3cret@127.0.0.1:1/ipam", "etcd://127.0.0.1:1/x?user=root:S3cret", "etcd://127.0.0.1:1/x?password=S3cret",
		"etcd://127.0.0.1:1/x?user=root:S3cret&insecure-transport=true", "etcd://127.0.0.1:1/x?user=root:S3cret&password-file=/nonexist",
		"postgres://u:S3cret@127.0.0.1:1/d", "postgres://u:S3cret@h:99999/d", "postgres://u:S3cret@127.0.0.1:1/d?sslmode=bogus", "postgres://u:S3cret@[::1/d",
		"postgres://u@127.0.0.1:1/d?password=S3cret", "postgres://u@127.0.0.1:1/d?sslmode=x&password=S3cret", "postgres://u:S3cret%@h/d", "postgres://u:S3cret@h/d?%zz",
		"postgres://u:S3c@ret:x@h/d", "postgres://u:S3cret@127.0.0.1:1/d?password-file=/nonexist", "postgres://u:S3cret@127.0.0.1:1/d?connect_timeout=abc",
		"postgres://u:S3cret@127.0.0.1:1/d?sslrootcert=/nonexist&sslmode=verify-full", "postgres://u@127.0.0.1:1/d?pass%77ord=S3cret", "postgres://u:S3cret@h h/d",
		"postgres://u:S3cret@127.0.0.1:1/d?service=nope", "postgres://u:S3cret@/d?host=/nonexist", "postgres://u:S3cret@127.0.0.1:1,127.0.0.1:2/d",
		"postgres://127.0.0.1:1/d?password=S3@ret:cret", "postgres://u:S3cret/x@h/d", "postgres://h:1/d?sslpassword=S3cret&x=y", "host=127.0.0.1 user=u password=S3cret",
		"host=127.0.0.1 user=u password = S3cret", "host=h password='a S3cret'", `host=h password='a\' S3cret'`, "postgres://host=h password=S3cret",
		"postgres://host=h password = S3cret", "u:S3:/cret@h", "u:S3cret@h/d", "bolt://u:S3cret@h/d", "sqlite://u:S3cret@/d",
	} {
		said := storeurl.Redact(name)
		if l, err := storeurl.Parse("--store", name); err == nil {
			said += " " + l.String()
		} else {
			said += " " + err.Error()
		}
		_, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": name}, "pool", "list", "--timeout", "20ms")
		said += " " + out + stderr
		if strings.Contains(said, "S3c") || strings.Contains(said, "cret") || !strings.Contains(said, "xxxxx") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// What a store forbids ends with its own status.
func TestForbidden(t *testing.T) {
	for code, want := range map[string]int{"42501": exitRefused, "28P01": exitRefused, "57P03": exitUnavailable} {
		if got := statusOf(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("%s: status %d", code, got)
		}
	}
}

// A file that one may only read is read, whatever its name is.
func TestSQLiteFiles(t *testing.T) {
	for _, file := range []string{"a b?c#d%41.sqlite", "plain.sqlite"} {
		path := filepath.Join(t.TempDir(), file)
		env := map[string]string{"IPAMCTL_STORE": "sqlite://" + path}
		if status, _, stderr := call(t, env, "pool", "add", "pods", "10.1.0.0/24"); status != exitOK {
			t.Fatal(stderr)
		}
		if files := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))); files[0].Name() != file {
			t.Errorf("%s is in %s", file, files[0].Name())
		}
		before := must[[]byte](t)(os.ReadFile(path))
		if status, out, stderr := call(t, env, "pool", "list", "-o", "name"); status != exitOK || out != "pods\n" {
			t.Errorf("%s: %s%s", file, out, stderr)
		}
		if string(before) != string(must[[]byte](t)(os.ReadFile(path))) {
			t.Errorf("a reader wrote to %s", file)
		}
	}
}

// Without the labels of hosts, what depends on them is not answered; a list of them, or of nodes, gives them.
func TestLabels(t *testing.T) {
	name := newBolt(t, cluster(t))
	dir := t.TempDir()
	for file, text := range map[string]string{"lines": "w1 zone=a,disk=ssd\nw2 zone=b # second\n# end\n", "bad": "w1 zone\n",
		"nodes.json": `{"kind":"List","items":[{"metadata":{"name":"w1","labels":{"zone":"a"}},"spec":{}}]}`,
		"nodes.yaml": "apiVersion: v1\nkind: List\nitems:\n- metadata:\n    name: w1\n    labels: {zone: a}\n"} {
		if err := os.WriteFile(dir+"/"+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	transcript(t, "labels.txt", map[string]string{"IPAMCTL_STORE": name, "dir": dir}, "pool add zoned 10.4.0.0/24 --nodes zone=a --priority 9",
		"assign --host w1 --handle x --dry-run", "assign --host w1 --handle x --pool pods --dry-run -o name", "assign --host w1 --handle x --pool zoned --dry-run -o name", "assign --host virtual:v --handle x --dry-run -o name",
		"assign --host w1 --handle x --labels "+dir+"/lines -o name", "assign --host w2 --handle y --labels "+dir+"/lines -o name", "assign --host w3 --handle z --labels "+dir+"/lines",
		"assign --host w1 --handle j --labels "+dir+"/nodes.json -o name", "assign --host w1 --handle y2 --labels "+dir+"/nodes.yaml -o name",
		"assign --host w1 --handle z --labels "+dir+"/bad", "assign --host w1 --handle z --labels "+dir+"/none",
		"sweep --unselected", "sweep -q", "sweep --unselected --labels "+dir+"/lines --dry-run")
}
