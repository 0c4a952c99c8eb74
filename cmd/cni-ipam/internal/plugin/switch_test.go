package plugin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// switched is a directory that changes hands, beside one in which host-local alone works. Both
// get the same calls and must give the same answers.
type switched struct {
	*testing.T
	alone, hands *node // hands.bin is the program that has the network
	conf         string
	calls        map[string]int
}

// call makes the same call on both.
func (s *switched) call(i invocation) {
	s.Helper()
	theirs, got := s.alone.call(i), s.hands.call(i)
	s.calls[i.verb]++
	st := &step{invocation: i, theirs: theirs, ours: got}
	switch {
	case theirs.code != got.code:
		s.Fatalf("%s: %d %s, want %d %s", i, got.code, got.stdout, theirs.code, theirs.stdout)
	case theirs.code == 0 && theirs.stdout != got.stdout:
		s.Fatalf("%s: %s, want %s", i, got.stdout, theirs.stdout)
	case theirs.code != 0 && s.hands.bin == s.alone.bin && theirs.stdout != got.stdout:
		s.Fatalf("%s: %s, want %s", i, got.stdout, theirs.stdout)
	case theirs.code != 0 && s.hands.bin != s.alone.bin:
		if err := st.sameFailure(); err != nil {
			s.Fatalf("%s: %v", i, err)
		}
	}
}

// export gives the network back and compares every file of host-local, byte by byte.
func (s *switched) export() {
	s.Helper()
	if a := s.hands.word("export"); a.code != 0 {
		s.Fatalf("%+v", a)
	}
	s.calls["export"]++
	s.hands.bin = s.alone.bin
	if got, want := s.hands.legacyContent("net"), s.alone.legacyContent("net"); !maps.Equal(got, want) {
		s.Fatalf("the files are %q, want %q", got, want)
	}
}

// legacyContent returns the files of host-local with their content.
func (n *node) legacyContent(network string) map[string]string {
	n.Helper()
	files := map[string]string{}
	for name := range n.ls(network) {
		_, isAddr := parseFileName(name)
		if _, isCursor := cursorSet(name); !isAddr && !isCursor {
			continue
		}
		b, err := os.ReadFile(filepath.Join(n.dir, network, name))
		if err != nil {
			n.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}

// TestSwitchDifferential: whoever has the network, the answers are those of host-local alone,
// and the files after an export are those that it would have written.
func TestSwitchDifferential(t *testing.T) {
	steps := 60
	if testing.Short() {
		steps = 40
	}
	calls := map[string]int{}
	for seed := range seeds.Each(t, 4, 40) {
		random := rand.New(rand.NewPCG(seed, 11))
		// A full set stops an ADD; with two sets, host-local has moved the first cursor by then.
		ipam := []string{`"ranges":[[{"subnet":"10.1.2.0/29"}]]`, `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}]]`,
			`"ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.2.8/29","rangeStart":"10.1.2.9","gateway":"10.1.2.10"}]]`}[seed%3]
		s := &switched{T: t, alone: newNode(t, other(t, "host-local")), hands: newNode(t, other(t, "host-local")), conf: conf("net", ipam), calls: calls}
		for range steps {
			i := invocation{container: fmt.Sprint("c", random.IntN(9)), ifname: fmt.Sprint("eth", random.IntN(2)), conf: s.conf}
			switch k := random.IntN(20); {
			case k >= 17 && !s.hands.place("net").exists("."):
				continue // nobody was there yet
			case k < 9:
				i.verb = "ADD"
			case k < 14:
				i.verb = "DEL"
			case k < 17:
				i.verb = "CHECK"
			case s.hands.bin != s.alone.bin:
				s.export()
				continue
			default: // the next call takes it over
				s.hands.bin = ours(t)
				calls["takeover"]++
				continue
			}
			s.call(i)
		}
		if s.hands.bin != s.alone.bin {
			s.export()
		}
	}
	for _, want := range []string{"ADD", "DEL", "CHECK", "takeover", "export"} {
		if calls[want] == 0 && !seeds.Chosen() {
			t.Errorf("no %s", want)
		}
	}
	t.Log(strings.TrimPrefix(fmt.Sprint(calls), "map"))
}

// place is that of a network of the node.
func (n *node) place(network string) place {
	return place{dir: filepath.Join(n.dir, network), network: network}
}
