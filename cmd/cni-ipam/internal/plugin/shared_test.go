//go:build unix

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var buildShared = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "shared")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return binaries.Shared(dir, "cni-ipam")
})

// sharedNode returns a node with both commands of this plugin.
func sharedNode(t testing.TB) *node {
	t.Helper()
	bin, err := buildShared()
	if err != nil {
		t.Fatal(err)
	}
	return newNode(t, bin)
}

// storeKeys returns the keys of ipam that name an etcd, for a node.
func storeKeys(c *servers.Etcd, node string, tls *servers.TLS) string {
	keys := fmt.Sprintf(`"store":"etcd://%s/cni","node":%q`, c.Members()[0].ClientAddress(), node)
	if tls != nil {
		keys += fmt.Sprintf(`,"storeTLS":{"ca":%q,"cert":%q,"key":%q}`, tls.CA, tls.ClientCert, tls.ClientKey)
	}
	return keys
}

// confFile writes a configuration for the words of a person.
func (n *node) confFile(conf string) string {
	n.Helper()
	path := filepath.Join(n.TempDir(), "net.conf")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(conf, "%DIR%", n.dir)), 0o600); err != nil {
		n.Fatal(err)
	}
	return path
}

// shown calls the plugin as a person does and returns what it prints.
func (n *node) shown(args ...string) string {
	n.Helper()
	out, err := exec.Command(n.bin, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		n.Fatal(err)
	}
	return string(out)
}

// says expects what it prints to contain a text.
func (n *node) says(want string, args ...string) {
	n.Helper()
	if got := n.shown(args...); !strings.Contains(got, want) {
		n.Fatalf("%v: %s, want %q", args, got, want)
	}
}

// first returns the first address of an ADD that must succeed.
func (n *node) first(container, conf string) string {
	n.Helper()
	return n.must(add1(container, conf)).addresses(n)[0]
}

func TestSharedNetwork(t *testing.T) {
	tls, err := servers.NewTLS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tls.ClientAuth = true
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, TLS: tls})
	a, b := sharedNode(t), sharedNode(t)
	ipam := one24 + "," + storeKeys(cluster, "%NODE%", tls)
	confA, confB := conf("net", strings.Replace(ipam, "%NODE%", "a", 1)), conf("net", strings.Replace(ipam, "%NODE%", "b", 1))
	twin := conf("twin", strings.Replace(ipam, "%NODE%", "b", 1)+`,"space":"net"`)
	apart := conf("apart", strings.Replace(ipam, "%NODE%", "b", 1))
	got := []string{a.first("a1", confA), b.first("b1", confB), b.first("t1", twin), b.first("p1", apart), a.first("a2", confA)}
	if want := []string{"10.1.2.2/24", "10.1.2.3/24", "10.1.2.4/24", "10.1.2.2/24", "10.1.2.5/24"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	a.must(invocation{verb: "CHECK", container: "a1", ifname: "eth0", conf: confA})
	b.fails(add1("b1", confB), 999, "duplicate allocation")
	b.must(invocation{verb: "STATUS", conf: confB})

	file := b.confFile(confB)
	b.says("net: ok, 4 attachments", "check", "-conf", file)
	b.says(`"scope": "b/net"`, "show", "-conf", file, "-o", "json")
	b.says("t1  eth0  cni-ipam  b/twin", "show", "-conf", file)

	// A GC of node b for net leaves node a, and the other network of the space, alone.
	gc := strings.Replace(confB, `"type":"bridge"`, `"type":"bridge","cni.dev/valid-attachments":[]`, 1)
	b.must(invocation{verb: "GC", conf: gc})
	b.says("net: ok, 3 attachments", "check", "-conf", file)
	b.first("b2", confB)
	list := `printf 't1\n# end\n' | "$0" gc -conf "$1" -max 100% -keep -`
	(&node{TB: t, bin: "/bin/sh"}).says("released 10.1.2.6 of b2/eth0", "-c", list, b.bin, file)
	b.says("released 10.1.2.5 of a2/eth0", "free", "-conf", file, "net", "10.1.2.5")
	b.says("this node holds 1 attachments", "export", "-conf", a.confFile(confA))
	b.must(del1("t1", twin))
	a.must(del1("a1", confA))
	a.must(del1("a1", confA))
	b.says("net: ok, 0 attachments", "check", "-conf", file)

	// host-local would give out addresses of its own.
	original := &node{TB: t, dir: a.dir, bin: other(t, binaries.HostLocal)}
	if x := original.call(add1("x", confA)); x.code == 0 {
		t.Errorf("host-local answers %s", x.stdout)
	}
}

func TestSharedErrors(t *testing.T) {
	n := sharedNode(t)
	for ipam, want := range map[string]struct {
		code int
		text string
	}{
		`"store":"etcd://"`:     {7, "a host is missing"},
		`"store":"redis://x/y"`: {7, "no such kind of store"},
		`"store":"etcd://a:1/x","storePasswordFile":"/no/file","storeInsecure":true`: {7, "ipam.storePasswordFile"},
		`"store":"etcd://a:1/x","rebootLeases":true`:                                 {7, "ipam.rebootLeases"},
		`"store":"etcd://a:1/x","storeUser":"u"`:                                     {7, "in clear"},
		`"store":7`:                                                                  {6, ""},
	} {
		n.fails(add1("c", conf("net", one24+","+ipam)), want.code, want.text)
	}
	// An etcd that does not answer: another try may succeed, and nothing is given out meanwhile.
	away := conf("net", one24+`,"store":"etcd://127.0.0.1:1/x"`)
	for _, verb := range []string{"ADD", "DEL"} {
		n.fails(invocation{verb: verb, container: "c", ifname: "eth0", conf: away}, 11, "connection refused")
	}
	// A store that is away makes no node unready unless that is asked for.
	status := func(keys string) invocation {
		return invocation{verb: "STATUS", conf: conf("net", one24+`,"store":"etcd://127.0.0.1:1/x"`+keys)}
	}
	n.must(status(""))
	n.must(status(`,"statusFull":true`))
	n.fails(status(`,"statusStore":true`), 50, "connection refused")
	n.fails(invocation{verb: "STATUS", conf: conf("net", `"ranges":[],"store":"etcd://127.0.0.1:1/x"`)}, 7, "no IP ranges")
	alone := newNode(t, ours(t))
	alone.fails(add1("c", conf("net", one24+`,"store":"etcd://a:1/x"`)), 5, "ipam.store needs")
}

// TestServerName: the certificate of the store must be of the name that the configuration
// says.
func TestServerName(t *testing.T) {
	tls, err := servers.NewTLS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, TLS: tls})
	n := sharedNode(t)
	named := func(name string) string {
		return conf("net", one24+","+strings.Replace(storeKeys(cluster, "a", tls), `"storeTLS":{`, fmt.Sprintf(`"storeTLS":{"serverName":%q,`, name), 1))
	}
	n.first("a", named("localhost"))
	if x := n.call(add1("b", named("other.example"))); x.code == 0 || !strings.Contains(x.stdout, "other.example") {
		t.Errorf("%d %s", x.code, x.stdout)
	}
}

// TestSharedMark: the directory of a shared network says so, to a configuration that names no
// store or another one, to the words, and to host-local.
func TestSharedMark(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	local, shared := conf("net", one24), conf("net", one24+","+storeKeys(cluster, "a", nil))
	n.first("a1", shared)
	file, mark := n.confFile(shared), "etcd://"+cluster.Members()[0].ClientAddress()+"/cni/ net"
	before := fingerprint(t, n.dir)
	for _, verb := range []string{"ADD", "DEL", "CHECK"} {
		n.fails(invocation{verb: verb, container: "x", ifname: "eth0", conf: local}, 7, mark)
	}
	n.fails(invocation{verb: "GC", conf: strings.Replace(local, `"type":"bridge"`, `"type":"bridge","cni.dev/valid-attachments":[]`, 1)}, 7, mark)
	n.fails(invocation{verb: "STATUS", conf: local}, 50, mark)
	elsewhere := conf("net", one24+","+strings.Replace(storeKeys(cluster, "a", nil), "/cni", "/cni2", 1))
	n.fails(add1("x", elsewhere), 7, mark)
	n.fails(add1("x", conf("net", one24+`,"space":"y",`+storeKeys(cluster, "a", nil))), 7, mark)
	keep := filepath.Join(t.TempDir(), "keep")
	n.put(keep, "none\n# end\n")
	for _, args := range [][]string{{"export"}, {"export", "-n"}, {"import"}, {"import", "-n"}, {"gc", "-keep", keep, "net"}, {"free", "net", "a1"}, {"repair", "net"}} {
		if a := n.word(args...); a.code != 1 || !strings.Contains(a.stderr, mark) {
			t.Errorf("%v: %+v", args, a)
		}
	}
	n.mustWord("net: not checked: shared, in "+mark+"; name it by -conf FILE\n", "check")
	n.mustWord("net  -  -  -  shared in "+mark+"\n", "show")
	if after := fingerprint(t, n.dir); !slices.Equal(after, before) {
		t.Fatalf("changed\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	original := &node{TB: t, dir: n.dir, bin: other(t, binaries.HostLocal)}
	if x := original.call(add1("x", shared)); x.code == 0 {
		t.Errorf("host-local answers %s", x.stdout)
	}
	// The way out: nothing is held, and the word names the store.
	n.says("holds 1 attachments", "export", "-conf", file)
	n.must(del1("a1", shared))
	n.says("could end the sharing with none", "export", "-n", "-conf", file)
	n.says("net: this node shares it no longer", "export", "-conf", file)
	if got := original.first("x", local); got != "10.1.2.2/24" {
		t.Errorf("host-local gave %s", got)
	}
	// And again, with files of host-local on the way in.
	n.must(del1("x", shared))
	n.says("net: this node shares it no longer", "export", "-conf", file)
	original.first("x", local)
}

// TestNetworksOfASpace: the key of an attachment has its network, so a DEL in one network of a
// space leaves what another one holds for the same container and interface.
func TestNetworksOfASpace(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	keys := one24 + `,"space":"common",` + storeKeys(cluster, "n", nil)
	a, b := conf("a", keys), conf("b", keys)
	if got := []string{n.first("c", a), n.first("c", b)}; !slices.Equal(got, []string{"10.1.2.2/24", "10.1.2.3/24"}) {
		t.Error(got)
	}
	n.must(del1("c", b))
	n.must(del1("c", b))
	n.must(invocation{verb: "CHECK", container: "c", ifname: "eth0", conf: a})
	n.says("a  10.1.2.2  c  eth0  cni-ipam  n/a", "show", "-conf", n.confFile(a))
	n.must(invocation{verb: "GC", conf: strings.Replace(a, `"type":"bridge"`, `"type":"bridge","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]`, 1)})
	n.must(del1("c", a))
	n.says("a: ok, 0 attachments", "check", "-conf", n.confFile(a))
}

// TestMoveIntoStore verifies that the attachments of a network that gets a store keep their
// addresses, whether host-local or this plugin had them.
func TestMoveIntoStore(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	a, b := sharedNode(t), sharedNode(t)
	original := &node{TB: t, dir: b.dir, bin: other(t, binaries.HostLocal)}
	local := conf("net", one24)
	a.first("a1", local)
	original.first("b1", local) // 10.1.2.2 is given on both nodes
	original.first("b2", local)
	confA, confB := conf("net", one24+","+storeKeys(cluster, "a", nil)), conf("net", one24+","+storeKeys(cluster, "b", nil))
	if got := a.first("a2", confA); got != "10.1.2.3/24" {
		t.Errorf("a2 got %s", got)
	}
	got := b.must(add1("b3", confB))
	if got.addresses(t)[0] != "10.1.2.4/24" || !strings.Contains(got.stderr, "10.1.2.3") {
		t.Errorf("b3 got %s%s", got.stdout, got.stderr)
	}
	b.says("net: ok, 3 attachments", "check", "-conf", b.confFile(confB))
	list := filepath.Join(b.dir, "alive")
	b.put(list, "a2\n# end\n")
	if a := b.word("gc", "-keep", list, "-max", "100%", "-conf", b.confFile(confB)); a.code == 0 || !strings.Contains(a.stderr, "not on record: use -keep -") {
		t.Errorf("gc by a file: %d %s", a.code, a.stderr)
	}
	a.must(del1("a1", confA))
}

// TestDamagedMove: a damaged state is not moved into the store while what it held may be alive,
// and does not stop the network after the next boot.
func TestDamagedMove(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	boot := filepath.Join(n.dir, "boot_id")
	n.put(boot, "one")
	keys := one24 + `,"bootIDFile":"%DIR%/boot_id"`
	n.must(add1("a", conf("net", keys)))
	n.must(add1("a2", conf("net", keys))) // the second call notes the boot
	n.damage(filepath.Join(n.dir, "net", stateName), "garbage")
	shared := conf("net", keys+","+storeKeys(cluster, "n", nil))
	n.fails(add1("b", shared), 5, "cni-ipam repair net")
	n.fails(del1("a", shared), 5, "cni-ipam repair net")
	n.put(boot, "two")
	if a := n.must(del1("a", shared)); !strings.Contains(a.stderr, "is lost and set aside") {
		t.Error(a.stderr)
	}
	n.first("b", shared)
	n.says("net: ok, 1 attachments", "check", "-conf", n.confFile(shared))
}

// TestSharedDamage: a shared network whose records cannot be read is neither whole nor empty.
func TestSharedDamage(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	shared := conf("net", one24+","+storeKeys(cluster, "a", nil))
	n.first("a1", shared)
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	db, err := etcdstore.Open(t.Context(), client, "/cni/", etcdstore.Options{NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	recs, _, err := db.List(t.Context(), store.Range{})
	if err != nil || len(recs) == 0 {
		t.Fatal(len(recs), err)
	}
	for _, r := range recs {
		if _, err := db.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: r.Key, Value: r.Value[:1], Expect: r.Rev}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"check", "show", "export"} {
		if got := n.shown(word, "-conf", n.confFile(shared)); !strings.Contains(got, "damaged") {
			t.Errorf("%s: %s", word, got)
		}
	}
}

// sharedStorm is what the runtimes of three nodes know.
type sharedStorm struct {
	*testing.T
	mu    sync.Mutex
	told  map[string][]string // what a container was told that it has; nil: anything may be
	kills int
	fails int
}

// worker calls for containers of its own, and kills every second call.
func (s *sharedStorm) worker(n *node, conf string, name string, seed uint64, calls int) {
	random := rand.New(rand.NewPCG(seed, 5))
	for range calls {
		container := fmt.Sprintf("%s-%d", name, random.IntN(6))
		s.mu.Lock()
		have, known := s.told[container]
		s.mu.Unlock()
		i := add1(container, conf)
		if known {
			i = del1(container, conf)
		}
		limit := time.Hour
		if random.IntN(2) == 0 {
			limit = time.Duration(random.IntN(60_000)) * time.Microsecond
		}
		a, killed := n.start(i, limit)
		s.mu.Lock()
		switch {
		case killed:
			s.kills++
			s.told[container] = nil
		case i.verb == "DEL" && a.code == 0:
			delete(s.told, container)
		case i.verb == "ADD" && a.code == 0:
			s.told[container] = a.addresses(s)
		case a.failure().Code == 11: // the etcd was killed
			s.fails++
			s.told[container] = nil
		default:
			s.Errorf("%s of %s, which has %v: %s", i.verb, container, have, a.stdout)
		}
		s.mu.Unlock()
	}
}

// TestSharedKillStorm kills calls on three nodes, and the etcd, at any point: no address is
// held twice, what was acknowledged is held, and DEL leaves nothing.
func TestSharedKillStorm(t *testing.T) {
	calls := 60
	if testing.Short() {
		calls = 15
	}
	cluster := servers.NewEtcd(t, servers.EtcdOptions{})
	s := &sharedStorm{T: t, told: map[string][]string{}}
	var wg sync.WaitGroup
	nodes, confs := map[string]*node{}, map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		n := sharedNode(t)
		c := conf("net", `"ranges":[[{"subnet":"10.1.2.0/26"}],[{"subnet":"fd00::/122"}]],`+storeKeys(cluster, name, nil))
		nodes[name], confs[name] = n, c
		for w := range 2 {
			wg.Go(func() { s.worker(n, c, fmt.Sprint(name, w), uint64(w)*3+uint64(name[0]), calls) })
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(3 * time.Second):
			m := cluster.Members()[0]
			m.Kill()
			if err := errors.Join(m.Start(), m.WaitHealthy(t.Context())); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d calls killed, %d failed beside an etcd that was killed", s.kills, s.fails)
	file := nodes["a"].confFile(confs["a"])
	nodes["a"].says("net: ok", "check", "-conf", file) // which sees an address that two hold
	s.compare(nodes["a"], file)
	for container := range s.told {
		nodes[container[:1]].must(del1(container, confs[container[:1]]))
	}
	nodes["a"].says("net: ok, 0 attachments", "check", "-conf", file)
}

// compare compares what the store holds with what the runtimes were told.
func (s *sharedStorm) compare(n *node, file string) {
	s.Helper()
	var all []struct {
		Holdings []struct {
			Container string
			Addresses []netip.Addr
		}
	}
	if err := json.Unmarshal([]byte(n.shown("show", "-o", "json", "-conf", file)), &all); err != nil {
		s.Fatal(err)
	}
	held := map[string][]string{}
	for _, h := range all[0].Holdings {
		for _, a := range h.Addresses {
			held[h.Container] = append(held[h.Container], fmt.Sprintf("%s/%d", a, map[bool]int{true: 26, false: 122}[a.Is4()]))
		}
	}
	for container, as := range held {
		if want, known := s.told[container]; !known || want != nil && !slices.Equal(as, want) {
			s.Errorf("%s holds %v and was told %v", container, as, want)
		}
	}
	for container, want := range s.told {
		if want != nil && held[container] == nil {
			s.Errorf("%s lost %v", container, want)
		}
	}
}
