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

// bothNode returns a node with both commands of this plugin, on which the one for local networks is called.
func bothNode(t testing.TB) *node {
	t.Helper()
	bin, err := buildShared()
	if err != nil {
		t.Fatal(err)
	}
	return newNode(t, bin)
}

// sharedNode returns a node on which the command for shared networks is called. A call that leaves something in its data
// directory fails the test.
func sharedNode(t testing.TB) *node {
	t.Helper()
	n := bothNode(t)
	n.bin = filepath.Join(filepath.Dir(n.bin), sharedName)
	t.Cleanup(func() {
		if left := fingerprint(t, n.dir); len(left) > 1 {
			t.Errorf("calls of a shared network left %q", left)
		}
	})
	return n
}

// sharedNet returns the configuration of a shared network.
func sharedNet(network, ipam string, more ...string) string {
	return strings.Replace(conf(network, ipam, more...), `"type":"host-local"`, `"type":"`+sharedName+`"`, 1)
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

// shownBy calls the plugin as a person does.
func (n *node) shownBy(args ...string) answer {
	n.Helper()
	cmd := exec.Command(n.bin, args...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		n.Fatal(err)
	}
	return answer{code: cmd.ProcessState.ExitCode(), stdout: string(out)}
}

// shown returns what a command prints.
func (n *node) shown(args ...string) string {
	n.Helper()
	return n.shownBy(args...).stdout
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
	confA, confB := sharedNet("net", strings.Replace(ipam, "%NODE%", "a", 1)), sharedNet("net", strings.Replace(ipam, "%NODE%", "b", 1))
	twin := sharedNet("twin", strings.Replace(ipam, "%NODE%", "b", 1)+`,"space":"net"`)
	apart := sharedNet("apart", strings.Replace(ipam, "%NODE%", "b", 1))
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
	b.says("t1  eth0  cni-ipam-etcd  b/twin", "show", "-conf", file)

	// A GC of node b for net leaves node a, and the other network of the space, alone.
	gc := strings.Replace(confB, `"type":"bridge"`, `"type":"bridge","cni.dev/valid-attachments":[]`, 1)
	b.must(invocation{verb: "GC", conf: gc})
	b.says("net: ok, 3 attachments", "check", "-conf", file)
	b.first("b2", confB)
	b.first("b3", confB)
	b.says("released 10.1.2.6 of b2/eth0", "gc", "-conf", file, "net", "b2")
	b.says("has no attachment", "gc", "-conf", file, "net", "10.1.2.5") // it is of node a
	b.says("released 10.1.2.5 of a2/eth0", "gc", "-conf", file, "-node", "a", "net", "10.1.2.5")
	b.says("released 10.1.2.7 of b3/eth0", "gc", "-conf", file, "-drained")
	b.must(del1("t1", twin))
	a.must(del1("a1", confA))
	a.must(del1("a1", confA))
	b.says("net: ok, 0 attachments", "check", "-conf", file)
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
		n.fails(add1("c", sharedNet("net", one24+","+ipam)), want.code, want.text)
	}
	// An etcd that does not answer: another try may succeed, and nothing is given out meanwhile.
	away := sharedNet("net", one24+`,"store":"etcd://127.0.0.1:1/x"`)
	for _, verb := range []string{"ADD", "DEL"} {
		n.fails(invocation{verb: verb, container: "c", ifname: "eth0", conf: away}, 11, "connection refused")
	}
	// A store that is away makes no node unready unless that is asked for.
	status := func(keys string) invocation {
		return invocation{verb: "STATUS", conf: sharedNet("net", one24+`,"store":"etcd://127.0.0.1:1/x"`+keys)}
	}
	n.must(status(""))
	n.must(status(`,"statusFull":true`))
	n.fails(invocation{verb: "STATUS", conf: sharedNet("net", `"ranges":[],"store":"etcd://127.0.0.1:1/x"`)}, 7, "no IP ranges")
	n.fails(add1("c", sharedNet("net", one24)), 7, "ipam.store is missing")
	n.fails(add1("c", conf("net", one24+`,"store":"etcd://a:1/x"`)), 7, "a network that nodes share has the type")
	n.fails(add1("c", sharedNet("net", one24+`,"store":"etcd://a:1/x","keyDays":0`)), 7, "ipam.keyDays")
	for _, args := range [][]string{{"install", n.dir}, {"uninstall", n.dir}, {"check"}, {"gc", "net", "c"}} {
		if a := n.shownBy(args...); a.code == 0 {
			t.Errorf("%v: %+v", args, a)
		}
	}
	// Earlier versions shared a network of the type host-local: the name of the new type is all that they are told.
	local := newNode(t, ours(t))
	for _, verb := range []string{"ADD", "DEL", "CHECK", "STATUS"} {
		local.fails(invocation{verb: verb, container: "c", ifname: "eth0", conf: conf("net", one24+`,"store":"etcd://a:1/x"`)}, 7, sharedName)
	}
	if left := fingerprint(t, local.dir); len(left) > 1 {
		t.Errorf("left: %q", left)
	}
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
		return sharedNet("net", one24+","+strings.Replace(storeKeys(cluster, "a", tls), `"storeTLS":{`, fmt.Sprintf(`"storeTLS":{"serverName":%q,`, name), 1))
	}
	n.first("a", named("localhost"))
	if x := n.call(add1("b", named("other.example"))); x.code == 0 || !strings.Contains(x.stdout, "other.example") {
		t.Errorf("%d %s", x.code, x.stdout)
	}
}

// TestNetworksOfASpace: the key of an attachment has its network, so a DEL in one network of a
// space leaves what another one holds for the same container and interface.
func TestNetworksOfASpace(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	keys := one24 + `,"space":"common",` + storeKeys(cluster, "n", nil)
	a, b := sharedNet("a", keys), sharedNet("b", keys)
	if got := []string{n.first("c", a), n.first("c", b)}; !slices.Equal(got, []string{"10.1.2.2/24", "10.1.2.3/24"}) {
		t.Error(got)
	}
	n.must(del1("c", b))
	n.must(del1("c", b))
	n.must(invocation{verb: "CHECK", container: "c", ifname: "eth0", conf: a})
	n.says("a  10.1.2.2  c  eth0  cni-ipam-etcd  n/a", "show", "-conf", n.confFile(a))
	n.must(invocation{verb: "GC", conf: strings.Replace(a, `"type":"bridge"`, `"type":"bridge","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]`, 1)})
	n.must(del1("c", a))
	n.says("a: ok, 0 attachments", "check", "-conf", n.confFile(a))
}

// TestSharedDamage: a shared network whose records cannot be read is neither whole nor empty.
func TestSharedDamage(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	shared := sharedNet("net", one24+","+storeKeys(cluster, "a", nil))
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
	for _, word := range []string{"check", "show"} {
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
		c := sharedNet("net", `"ranges":[[{"subnet":"10.1.2.0/26"}],[{"subnet":"fd00::/122"}]],`+storeKeys(cluster, name, nil))
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

// TestOrphan: an ADD whose caller has been killed waits for an etcd that does not answer, and the DEL of the runtime ends before
// it. Nothing is held then.
func TestOrphan(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	c := sharedNet("net", one24+","+storeKeys(cluster, "a", nil))
	n.first("first", c)
	file, etcd := n.confFile(c), cluster.Members()[0]
	for round := range 4 {
		if err := etcd.Pause(); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("p", round)
		// The shell is the plugin that calls this one; setsid makes sure that its death takes nothing with it.
		caller := exec.Command("/bin/sh", "-c", `"$0" <"$1"; true`, n.bin, file)
		caller.Env = add1(name, "").environment()
		if err := caller.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(300+round*300) * time.Millisecond)
		caller.Process.Kill()
		caller.Wait()
		done := make(chan answer, 1)
		go func() { a, _ := n.start(del1(name, c), time.Hour); done <- a }()
		time.Sleep(300 * time.Millisecond)
		if err := etcd.Resume(); err != nil {
			t.Fatal(err)
		}
		if a := <-done; a.code != 0 {
			t.Errorf("DEL: %s", a.stdout)
		}
		time.Sleep(time.Second) // the ADD ends
		n.says("net: ok, 1 attachments", "check", "-conf", file)
	}
}

// TestOrderOfAttachment: calls for one attachment take turns, so the DEL behind a slow ADD releases what that added; a call that
// was killed stops nobody.
func TestOrderOfAttachment(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	c := sharedNet("net", one24+","+storeKeys(cluster, "a", nil))
	for round := range 8 {
		name := fmt.Sprint("p", round)
		done := make(chan answer, 1)
		go func() {
			a, _ := n.start(add1(name, c), time.Duration(map[bool]int{true: 40 + 15*round, false: 60_000}[round%2 == 0])*time.Millisecond)
			done <- a
		}()
		time.Sleep(time.Duration(30+round*10) * time.Millisecond)
		began := time.Now()
		n.must(del1(name, c))
		<-done
		n.must(del1(name, c))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("a DEL took %s", took)
		}
	}
	n.says("net: ok, 0 attachments", "check", "-conf", n.confFile(c))
}

// TestPersistentAddresses: a machine that migrates or stops keeps its addresses by the key that the runtime passes.
func TestPersistentAddresses(t *testing.T) {
	cluster := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	n := sharedNode(t)
	keys := one24 + `,"space":"s",` + storeKeys(cluster, "%NODE%", nil)
	vm := func(node, name string) string {
		return sharedNet("net", strings.Replace(keys, "%NODE%", node, 1), `"args":{"cni":{"ipam-claim-reference":"`+name+`"}}`)
	}
	plain := sharedNet("net", strings.Replace(keys, "%NODE%", "a", 1))
	if got := []string{n.first("c1", vm("a", "ns.vm")), n.first("x", plain), n.first("c2", vm("b", "ns.vm"))}; !slices.Equal(got, []string{"10.1.2.2/24", "10.1.2.3/24", "10.1.2.2/24"}) {
		t.Fatal(got)
	}
	n.fails(add1("c2", vm("b", "ns.vm")), 999, "duplicate allocation")
	n.must(del1("c1", plain)) // without the key, as from a cache; it has nothing any more
	n.must(invocation{verb: "CHECK", container: "c2", ifname: "eth0", conf: vm("b", "ns.vm")})
	file := n.confFile(plain)
	n.says("used by c2", "show", "-conf", file)
	n.must(del1("c2", vm("b", "ns.vm")))
	if got := n.first("c3", vm("a", "ns.vm")); got != "10.1.2.2/24" {
		t.Fatal(got)
	}
	n.fails(add1("c4", sharedNet("net", strings.Replace(keys, "%NODE%", "a", 1), `"args":{"cni":{"ipam-claim-reference":"ns.vm","ips":["10.1.2.9"]}}`)), 7, "holds other addresses: 10.1.2.2")
	// A GC takes the key out of use, and leaves it its addresses.
	n.must(invocation{verb: "GC", conf: strings.Replace(plain, `"type":"bridge"`, `"type":"bridge","cni.dev/valid-attachments":[{"containerID":"x","ifname":"eth0"}]`, 1)})
	n.says("10.1.2.2  key/ns.vm/net", "show", "-conf", file)
	if got := n.first("y", plain); got != "10.1.2.4/24" {
		t.Fatal(got)
	}
	n.says("released 10.1.2.2 of key/ns.vm", "gc", "-conf", file, "net", "ns.vm")
	n.says("net: ok, 2 attachments", "check", "-conf", file)
}
