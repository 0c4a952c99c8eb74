package plugin

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// start runs a call and kills it after a time; killed says that it did not end by itself.
func (n *node) start(i invocation, kill time.Duration) (a answer, killed bool) {
	cmd := n.command(i.environment())
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(i.conf, "%DIR%", n.dir))
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		n.Error(err)
		return a, true
	}
	timer := time.AfterFunc(kill, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	code := cmd.ProcessState.ExitCode()
	return answer{code: code, stdout: out.String()}, err != nil && code < 0
}

// TestKillStorm kills calls of eight processes at a time at any point: what was acknowledged is there, nothing is twice,
// and a DEL that is allowed to end leaves nothing of its attachment.
func TestKillStorm(t *testing.T) {
	const workers = 8
	calls := 2000
	if testing.Short() {
		calls = 160
	}
	n := newNode(t, ours(t))
	c := conf("net", `"ranges":[[{"subnet":"10.1.0.0/22"}],[{"subnet":"fd00::/120"}]]`)
	var mu sync.Mutex
	told := map[string][]string{} // what a container was told that it has; nil: anything may be
	kills := 0
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			random := rand.New(rand.NewPCG(uint64(w), 3))
			for range calls / workers {
				name := fmt.Sprintf("w%d-%d", w, random.IntN(12)) // of this worker alone: a runtime calls for one thing at a time
				mu.Lock()
				have, known := told[name]
				mu.Unlock()
				i := add1(name, c)
				if known || random.IntN(4) == 0 {
					i = del1(name, c)
				}
				limit := time.Hour
				if random.IntN(2) == 0 {
					limit = time.Duration(random.IntN(4000)) * time.Microsecond
				}
				a, killed := n.start(i, limit)
				mu.Lock()
				switch {
				case killed:
					kills++
					told[name] = nil
				case i.verb == "DEL" && a.code == 0:
					delete(told, name)
				case i.verb == "ADD" && a.code == 0:
					told[name] = a.addresses(t)
				default:
					t.Errorf("%s of %s, which has %v: %s", i.verb, name, have, a.stdout)
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	t.Logf("%d calls, %d of them killed", calls, kills)
	n.afterStorm(told, c)
}

// afterStorm compares what is held with what containers were told, and releases all.
func (n *node) afterStorm(told map[string][]string, c string) {
	n.Helper()
	held := map[string][]string{}
	for _, h := range n.state("net").Holdings { // which checks that nothing is twice
		for _, a := range h.Addresses {
			bits := "/22"
			if a.Is6() {
				bits = "/120"
			}
			held[h.Attachment.Container] = append(held[h.Attachment.Container], a.String()+bits)
		}
	}
	for name, want := range told {
		if want == nil {
			if got := len(held[name]); got != 0 && got != 2 {
				n.Errorf("%s holds %v: half an ADD", name, held[name])
			}
		} else if !slices.Equal(held[name], want) {
			n.Errorf("%s holds %v and was told %v", name, held[name], want)
		}
		n.must(del1(name, c))
	}
	if s := n.state("net"); len(s.Holdings) != 0 {
		n.Errorf("leaked: %v", s.Holdings)
	}
}

// TestParallelAdds: calls that come at once get distinct addresses.
func TestParallelAdds(t *testing.T) {
	calls := 320
	if testing.Short() {
		calls = 48
	}
	n := newNode(t, ours(t))
	c := conf("net", `"ranges":[[{"subnet":"10.1.0.0/22"}]]`)
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for i := range calls {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a, killed := n.start(add1(fmt.Sprint("c", i), c), time.Hour)
			mu.Lock()
			defer mu.Unlock()
			if killed || a.code != 0 {
				t.Errorf("%d: %s", a.code, a.stdout)
				return
			}
			seen[a.addresses(t)[0]]++
		}()
	}
	wg.Wait()
	if len(seen) != calls {
		t.Errorf("%d distinct addresses of %d", len(seen), calls)
	}
}

// holders returns the one address, with a length, that each container of a network holds.
func (n *node) holders(network string, bits int) map[string]string {
	n.Helper()
	got := map[string]string{}
	for _, h := range n.state(network).Holdings {
		got[h.Attachment.Container] = netip.PrefixFrom(h.Addresses[0], bits).String()
	}
	return got
}

// handoverStorm is what the callers of both plugins were told.
type handoverStorm struct {
	*testing.T
	mu   sync.Mutex
	told map[string]string // the address of each container; empty if the answer is unknown
}

// call makes one call of a container and notes the answer.
func (s *handoverStorm) call(n *node, verb, container, conf string) {
	i := invocation{verb: verb, container: container, ifname: "eth0", conf: conf}
	a, _ := n.start(i, time.Hour)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.code == 128+9 || a.code < 0:
		s.told[container] = ""
	case a.code != 0 && !strings.Contains(a.stdout, "is a directory") && a.failure().Code != 11:
		s.Errorf("%s: %d %s", i, a.code, a.stdout)
	case a.code != 0: // nothing has changed
	case verb == "ADD":
		s.told[container] = a.addresses(s)[0]
	default:
		delete(s.told, container)
	}
}

// compare verifies that what is held is what the callers were told.
func (s *handoverStorm) compare(held map[string]string) {
	s.Helper()
	seen := map[string]string{}
	for container, address := range s.told {
		if address == "" {
			continue
		}
		if other, twice := seen[address]; twice {
			s.Errorf("%s was given to %s and %s", address, container, other)
		}
		if seen[address] = container; held[container] != address {
			s.Errorf("%s was told %s, and %q is held", container, address, held[container])
		}
	}
	for container, address := range held {
		if _, known := s.told[container]; !known {
			s.Errorf("%s leaked: %s was released", address, container)
		}
	}
}
