package plugin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// A divergence is something that the two plugins do differently on purpose. match says whether it explains a step.
type divergence struct {
	reason string
	match  func(s *step) bool
}

// step is one call of both, and what came of it.
type step struct {
	invocation
	theirs, ours                   answer
	before, theirsAfter, oursAfter held
	requested, listed              bool // what the configuration has
}

func (s *step) theyFail() bool { return s.theirs.code != 0 }
func (s *step) weFail() bool   { return s.ours.code != 0 }

// sameOwners reports whether both hold the same, wherever their sets go on.
func (s *step) sameOwners() bool { return maps.Equal(s.theirsAfter.owners, s.oursAfter.owners) }

func (s *step) oursUnchanged() bool { return s.oursAfter.equal(s.before) }

// stateDivergences are those that show in what is held, or in whether the call fails.
var stateDivergences = []divergence{
	{"a request does not move the place where a set goes on", func(s *step) bool {
		return s.verb == "ADD" && s.requested && !s.theyFail() && s.theirs.stdout == s.ours.stdout && s.sameOwners()
	}},
	{"an ADD that fails changes neither the cursors nor the addresses of the attachment", func(s *step) bool {
		return s.verb == "ADD" && s.theyFail() && s.weFail() && s.oursUnchanged() && s.sameFailure() == nil
	}},
	{"a request does not get around the refusal of a second ADD", func(s *step) bool {
		return s.verb == "ADD" && s.requested && s.weFail() && strings.Contains(s.ours.failure().Msg, "duplicate allocation") && s.oursUnchanged()
	}},
	{"DEL needs no ranges, no requests and no arguments", func(s *step) bool {
		return s.verb == "DEL" && s.theyFail() && !s.weFail() && strings.Contains(" 999 ", fmt.Sprint(" ", s.theirs.failure().Code, " "))
	}},
	{"CHECK looks for every address of prevResult", func(s *step) bool {
		return s.verb == "CHECK" && s.listed && !s.theyFail() && s.weFail() && strings.Contains(s.ours.failure().Msg, "prevResult")
	}},
	{"GC releases", func(s *step) bool { return s.verb == "GC" && s.theirs.code == s.ours.code }},
	{"STATUS looks at the configuration", func(s *step) bool {
		return s.verb == "STATUS" && !s.theyFail() && s.weFail() && slices.Contains([]int{6, 7}, s.ours.failure().Code)
	}},
	{"GC looks at the configuration", func(s *step) bool {
		return s.verb == "GC" && !s.theyFail() && s.weFail() && slices.Contains([]int{6, 7}, s.ours.failure().Code)
	}},
	{"a range that starts after its end is refused: it would run on beyond its subnet", func(s *step) bool {
		return s.verb != "DEL" && s.weFail() && s.ours.failure().Code == 7 && strings.Contains(s.conf, `"rangeStart":"10.1.2.255"}`)
	}},
	{"a container that is called like an address is not taken for the file that says where a set goes on", func(s *step) bool {
		return s.container == "10.1.2.2" && (s.verb == "CHECK" && !s.theyFail() && s.weFail() || s.verb == "DEL" && !s.theyFail() && !s.weFail() && s.sameOwners())
	}},
	{"null in a list of addresses is refused, not a crash", func(s *step) bool {
		return s.theirs.code == 2 && (s.ours.failure().Code == 7 || s.verb == "DEL")
	}},
}

// codes are the codes that host-local's 999 has become, by text.
var codes = []struct {
	text string
	code int
}{
	{"no IP addresses available in range set", 11}, {"is not available in range set", 11},
	{"is subnet's gateway", 7}, {"failed to allocate all requested IPs", 7}, {"IPAM config missing", 7}, {"no IP ranges specified", 7},
	{"invalid range set", 7}, {"overlaps with", 7}, {"does not support more than 1 address per family", 7}, {"cannot understand ip", 7},
	{"ARGS:", 4}, {"resolv.conf: no such file", 5},
	{"json:", 6}, {"invalid CIDR address", 6}, {"invalid IP address", 6},
	{"duplicate allocation is not allowed", 999}, {"Failed to find address", 999},
}

// sameFailure reports whether both say the same went wrong. Ours has the version, who holds the address, and a code that
// says more than 999.
func (s *step) sameFailure() error {
	theirs, ours := s.theirs.failure(), s.ours.failure()
	want := theirs.Code
	if want == 999 {
		i := slices.IndexFunc(codes, func(c struct {
			text string
			code int
		}) bool {
			return strings.Contains(ours.Msg, c.text)
		})
		if i < 0 {
			return fmt.Errorf("%q has no code", ours.Msg)
		}
		want = codes[i].code
	}
	switch {
	case ours.Code != want:
		return fmt.Errorf("code %d, want %d: %s", ours.Code, want, ours.Msg)
	case ours.CNIVersion != "1.1.0":
		return fmt.Errorf("version %q", ours.CNIVersion)
	case strings.HasPrefix(theirs.Details, "held by") || theirs.Details != ours.Details && !strings.HasPrefix(ours.Details, "held by "):
		return fmt.Errorf("details %q, want %q", ours.Details, theirs.Details)
	case theirs.Msg == ours.Msg:
		return nil
	case want == 6: // the decoder of JSON names the types of the program
		return nil
	}
	// Of two requests in one set, ours takes the first; there, the order of a map decides which one is tried and which ones
	// nobody took.
	for _, text := range []string{"failed to allocate all requested IPs", "is not available in range set", "is subnet's gateway", "duplicate allocation"} {
		if s.requested && strings.Contains(ours.Msg, text) {
			return nil
		}
	}
	return fmt.Errorf("%q, want %q", ours.Msg, theirs.Msg)
}

// judge returns nil if the step is as it should be, and the divergence that explains it if there is one.
func (s *step) judge() (reason string, err error) {
	same := s.theirs.code == s.ours.code
	if same && s.theyFail() {
		err = s.sameFailure()
	} else if same && s.theirs.stdout != s.ours.stdout {
		err = fmt.Errorf("stdout %s, want %s", s.ours.stdout, s.theirs.stdout)
	}
	if same && err == nil && s.theirsAfter.equal(s.oursAfter) {
		return "", nil
	}
	for _, d := range stateDivergences {
		if d.match(s) {
			return d.reason, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("exit %d holding %v, want %d holding %v", s.ours.code, s.oursAfter, s.theirs.code, s.theirsAfter)
	}
	return "", err
}

// pair is a node with each plugin, in the same state.
type pair struct {
	theirs, ours *node
	seen         map[string]int
}

func newPair(t testing.TB) *pair {
	p := &pair{newNode(t, other(t, "host-local")), newNode(t, ours(t)), map[string]int{}}
	for _, n := range []*node{p.theirs, p.ours} {
		if err := os.WriteFile(filepath.Join(n.dir, "resolv.conf"), []byte("nameserver 192.0.2.3\nsearch example.com\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// run makes the same call on both and compares. Where they differ on purpose, host-local's directory is made to say what
// ours does, so that the next step begins with the same.
func (p *pair) run(t testing.TB, s *step, network string) (reason string) {
	t.Helper()
	s.before = heldOf(p.theirs.files(network))
	s.theirs, s.ours = p.theirs.call(s.invocation), p.ours.call(s.invocation)
	s.theirs.stdout = strings.ReplaceAll(s.theirs.stdout, p.theirs.dir, p.ours.dir)
	s.theirsAfter = heldOf(p.theirs.files(network))
	now := p.ours.state(network)
	s.oursAfter = heldOf(now)
	reason, err := s.judge()
	if err != nil {
		t.Fatalf("%s\nbefore %v\nhost-local: %d %s\n%v\nours: %d %s\n%v\n%v", s.invocation, s.before, s.theirs.code, s.theirs.stdout, s.theirsAfter, s.ours.code, s.ours.stdout, s.oursAfter, err)
	}
	p.seen[reason]++
	if !s.theirsAfter.equal(s.oursAfter) {
		p.theirs.write(network, now)
	}
	return reason
}

var differentialVersions = []string{"1.1.0", "1.1.0", "1.0.0", "0.4.0", "0.3.1", "0.3.0", "0.2.0", "0.1.0", "", "2.0.0", "x"}

// differentialRanges are what ipam may have; the small ones fill.
var differentialRanges = []string{
	`"ranges":[[{"subnet":"10.1.2.0/29"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/29"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.2.8/30"}],[{"subnet":"fd00::/126"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"fd00::/64","rangeStart":"fd00::5","rangeEnd":"fd00::8","gateway":"fd00::7"}]]`,
	`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.4","rangeEnd":"10.1.2.6","gateway":"10.1.2.5"`,
	`"subnet":"10.1.2.0/28","ranges":[[{"subnet":"10.1.3.0/30"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.0","rangeEnd":"10.1.2.3","gateway":"192.0.2.1"}]]`,
	`"ranges":[[{"subnet":"fd00::/125"}]]`,
	// What is refused.
	`"ranges":[]`, `"ranges":[[]]`, `"ranges":[[{"subnet":"10.1.2.0/31"}]]`, `"ranges":[[{"subnet":"10.1.2.3/32"}]]`, `"ranges":[[{"subnet":"fd00::/127"}]]`,
	`"ranges":[[{"subnet":"10.1.2.3/24"}]]`, `"ranges":[[{"subnet":"fd00::5/64"}]]`, `"ranges":[[{"subnet":"::ffff:10.1.2.0/120"}]]`, `"ranges":[[{"subnet":"::ffff:10.1.2.0/127"}]]`,
	`"ranges":[[{"rangeStart":"10.1.2.3"}]]`, `"rangeStart":"10.1.2.3"`, `"type":"x"`,
	`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.3.1"}]]`, `"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.3.1"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.8"}]]`, `"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.2.0"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"fd00::1"}]]`, `"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"fd00::1"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/29","rangeStart":"::ffff:10.1.2.3","rangeEnd":"::ffff:10.1.2.5","gateway":"::ffff:10.1.2.4"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"fd00::/64"}]]`, `"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.2.128/25"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.4.0/24"},{"subnet":"10.1.2.128/25"}]]`,
	`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.255"}]]`,
	`"ranges":"x"`, `"subnet":"x"`, `"subnet":"10.1.2.0"`, `"subnet":5`, `"ranges":[[{"subnet":"10.1.2.0/24","gateway":"x"}]]`, `"subnet":"10.1.2.0/024"`, `"subnet":null`,
	`"ranges":[[{"subnet":"10.1.2.0/29","rangeStart":""}]]`, `"ranges":null`,
	`"ranges":[[{"subnet":"10.1.2.0/29"}]],"resolvConf":"%DIR%/resolv.conf"`, `"ranges":[[{"subnet":"10.1.2.0/29"}]],"resolvConf":"%DIR%/no/resolv.conf"`,
	`"ranges":[[{"subnet":"10.1.2.0/29"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"fd01::/16","gw":"fd00::9"},{"dst":"192.168.0.0/16","gw":"1.1.1.1","mtu":1400,"advmss":1300,"priority":100000000,"table":7,"scope":0}]`,
	`"ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"fd00::/125"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"10.0.0.0/8","gw":"10.1.2.1"}]`,
	`"ranges":[[{"subnet":"10.1.2.0/29"}]],"routes":[{"dst":"x"}]`, `"ranges":[[{"subnet":"10.1.2.0/29"}]],"routes":null`,
}

var differentialIPs = []string{"10.1.2.2", "10.1.2.3/24", "10.1.2.1", "10.1.2.6", "10.1.2.8", "10.1.2.10", "fd00::2", "fd00::3/64", "fd00::7", "192.0.2.1", "10.1.3.2", "::ffff:10.1.2.4", ""}

// draw makes one step of a trace.
func draw(tr *model.Trace) *step {
	s := &step{}
	s.verb = []string{"ADD", "ADD", "ADD", "ADD", "ADD", "DEL", "DEL", "DEL", "CHECK", "CHECK", "STATUS", "GC", "VERSION", "UPDATE"}[tr.Op(14)]
	s.container = []string{"c1", "c2", "c3", "c4", "10.1.2.2", "bad id", ""}[min(tr.Below(14), 6)%7]
	if v := tr.Below(40); v > 1 && (s.container == "" || s.container == "bad id") {
		s.container = "c5"
	}
	s.ifname = []string{"eth0", "eth0", "eth0", "eth1", "eth0", "sixteen-letters!", "a/b", ".."}[max(0, int(tr.Below(60))-52)]
	ranges := differentialRanges[tr.Below(8)]
	if tr.Below(4) == 0 {
		ranges = differentialRanges[tr.Below(uint64(len(differentialRanges)))]
	}
	version := differentialVersions[tr.Below(2)]
	if tr.Below(4) == 0 {
		version = differentialVersions[tr.Below(uint64(len(differentialVersions)))]
	}
	ips := func() string {
		var list []string
		for range tr.Below(3) {
			ip := `"` + differentialIPs[tr.Below(uint64(len(differentialIPs)))] + `"`
			if tr.Below(60) == 0 {
				ip = "null"
			}
			list = append(list, ip)
		}
		s.requested = s.requested || len(list) > 0
		return "[" + strings.Join(list, ",") + "]"
	}
	more := ""
	if tr.Below(5) == 0 {
		more += fmt.Sprintf(`,"args":{"cni":{"ips":%s}}`, ips())
	}
	if tr.Below(6) == 0 {
		more += fmt.Sprintf(`,"runtimeConfig":{"ips":%s}`, ips())
	} else if tr.Below(8) == 0 {
		more += `,"runtimeConfig":{"ipRanges":[[{"subnet":"10.1.9.0/30"}]]}`
	}
	if v := tr.Below(6); v == 0 || s.requested && v < 3 {
		s.requested = true
		s.args = []string{"IP=10.1.2.4", "IP=10.1.2.5/29", "IP=fd00::2", "IP=", "IP=x", "K8S_POD=x", "IgnoreUnknown=1;K8S_POD=x;IP=10.1.2.3", "IP", "IgnoreUnknown=x", ";"}[tr.Below(10)]
	}
	if v := tr.Below(12); s.verb == "CHECK" && v < 6 {
		s.listed = true
		more += fmt.Sprintf(`,"prevResult":{"cniVersion":%q,"ips":[{"address":"%s","version":"4"}]}`, version, []string{"10.1.2.2/29", "10.1.2.3/29", "10.1.2.4/29", "fd00::2/64", "192.0.2.1/24", "10.1.2.5/29"}[v])
	}
	if s.verb == "GC" {
		more += []string{``, `,"cni.dev/valid-attachments":[]`, `,"cni.dev/valid-attachments":null`, `,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth0"}]`, `,"cni.dev/attachments":[{"containerID":"c3","ifname":"eth0"}]`}[tr.Below(5)]
	}
	name := []string{"net", "net", "../net", "", "n t", "."}[max(0, int(tr.Below(80))-74)]
	s.conf = fmt.Sprintf(`{"cniVersion":%q,"name":%q,"type":"bridge"%s,"ipam":{"type":"host-local","dataDir":"%%DIR%%",%s}}`, version, name, more, ranges)
	switch tr.Below(60) {
	case 0:
		s.conf = s.conf[:len(s.conf)/2]
	case 1:
		s.conf = strings.Replace(s.conf, `"ipam"`, `"ipan"`, 1)
	case 2:
		s.conf = strings.Replace(s.conf, `"name":"net"`, `"name":5`, 1)
	case 3:
		s.conf = strings.Replace(s.conf, `"cniVersion":"1.1.0"`, `"cniVersion":5`, 1)
	case 4:
		s.unset = []string{"CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_PATH"}[tr.Below(5)]
	}
	return s
}

// differential runs a trace on both plugins.
func differential(t testing.TB, p *pair, data []byte) (steps int) {
	for tr := model.NewTrace(data); tr.More() && steps < 400; steps++ {
		p.run(t, draw(tr), "net")
	}
	return steps
}

func randomTrace(rng *rand.Rand, n int) (data []byte) {
	for range n * 20 {
		data = append(data, byte(rng.UintN(128))) // every operand below 128 is one byte
	}
	return data
}

// TestDifferential: stdout, exit status and the addresses held are those of the real host-local, or the difference is in the
// list.
func TestDifferential(t *testing.T) {
	p := newPair(t)
	for seed := range seeds.Each(t, 4, 32) {
		differential(t, p, randomTrace(rand.New(rand.NewPCG(seed, 7)), 50))
	}
	for _, d := range stateDivergences {
		t.Logf("%5d  %s", p.seen[d.reason], d.reason)
	}
}

// TestDivergences shows each difference of the list by itself.
func TestDivergences(t *testing.T) {
	small := conf("net", `"ranges":[[{"subnet":"10.1.2.0/30"}]]`)
	both := conf("net", `"ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"fd00::/126"}]]`)
	asks := func(verb, container, args string, more ...string) *step {
		return &step{invocation: invocation{verb: verb, container: container, ifname: "eth0", args: args, conf: conf("net", one24, more...)}, requested: true}
	}
	plain := func(verb, container, conf string) *step {
		return &step{invocation: invocation{verb: verb, container: container, ifname: "eth0", conf: conf}}
	}
	seen := map[string]bool{}
	for _, steps := range [][]*step{
		{asks("ADD", "c1", "IP=10.1.2.9")},
		{plain("ADD", "c1", both), plain("ADD", "c2", both), plain("ADD", "c3", both)}, // full in the second set
		{plain("ADD", "c1", conf("net", one24)), asks("ADD", "c1", "IP=10.1.2.9")},
		{plain("ADD", "c1", conf("net", one24)), plain("DEL", "c1", conf("net", `"ranges":[]`))},
		{plain("ADD", "c1", conf("net", one24)), {invocation: asks("CHECK", "c1", "", `"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`).invocation, listed: true}},
		{plain("ADD", "c1", conf("net", one24)), plain("GC", "", conf("net", one24, `"cni.dev/valid-attachments":[]`))},
		{plain("STATUS", "", conf("net", `"ranges":[]`))},
		{plain("GC", "", strings.Replace(small, "ipam", "ipan", 1))},
		{plain("ADD", "c1", conf("net", `"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.255"}]]`))},
		{plain("ADD", "c1", conf("net", one24)), plain("DEL", "c1", conf("net", one24)), plain("CHECK", "10.1.2.2", conf("net", one24))},
		{asks("ADD", "c1", "", `"args":{"cni":{"ips":[null]}}`)},
	} {
		p := newPair(t)
		for i, s := range steps {
			reason := p.run(t, s, "net")
			if last := i == len(steps)-1; last != (reason != "") {
				t.Errorf("%s: %q", s.invocation, reason)
			}
			seen[reason] = true
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range stateDivergences {
		if !seen[d.reason] {
			t.Errorf("not shown: %s", d.reason)
		}
		if !strings.Contains(string(readme), "| "+d.reason+" |") {
			t.Errorf("not in the table of README.md: %s", d.reason)
		}
	}
}

func FuzzDifferential(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(randomTrace(rand.New(rand.NewPCG(seed, 8)), 5))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			return // two processes for each step
		}
		differential(t, newPair(t), data)
	})
}
