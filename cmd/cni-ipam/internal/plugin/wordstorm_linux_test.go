package plugin

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

// TestWordStorm: every word that hands networks over runs in a loop, killed at any of its system
// calls and repeated, beside calls of both programs that are held back at theirs. What callers
// were told is what is held at the end, in each network.
func TestWordStorm(t *testing.T) {
	rounds, turns := 4, 12
	if testing.Short() {
		rounds, turns = 1, 6
	}
	n := newNode(t, other(t, binaries.HostLocal))
	n.traced("kill=1")
	mine := &node{TB: t, dir: n.dir, bin: ours(t)}
	confs := map[string]string{"blue": conf("blue", one24), "red": conf("red", one24)}
	plugins := t.TempDir()
	dest := filepath.Join(plugins, "host-local")
	if err := copyFile(n.bin, dest); err != nil {
		t.Fatal(err)
	}
	networks := []string{"blue", "red"}
	list := filepath.Join(t.TempDir(), "list") // of every pod there may be: gc has nothing to release
	pods := ""
	for i := range 24 {
		pods += fmt.Sprint(networks[i%2], "-w", i/2%4, "-", i/8, "\n")
	}
	n.put(list, pods+"blue-first\nred-first\n# end\n")
	s := &handoverStorm{T: t, told: map[string]string{}}
	for _, network := range networks {
		s.call(n, "ADD", network+"-first", confs[network])
	}
	words := [][]string{{"export"}, {"install", plugins}, {"uninstall", plugins}, {"install", plugins}, {"uninstall", plugins},
		{"gc", "-keep", list, "-max", "100%", "blue", "red"}, {"check"}, {"uninstall", "-n", plugins}}
	for round := range rounds {
		stop := make(chan struct{})
		var callers, people sync.WaitGroup
		for w := range 4 {
			callers.Go(func() {
				caller := *[]*node{n, mine, {TB: t, dir: n.dir, bin: dest}}[w%3] // the last one is what is in place
				for k := 0; ; k++ {
					select {
					case <-stop:
						return
					default:
					}
					caller.trace = fmt.Sprint("stretch=", round*1000+w*100+k)
					network, pod := networks[k%2], k%3
					name := fmt.Sprint(network, "-w", w, "-", pod)
					s.mu.Lock()
					_, has := s.told[name]
					s.mu.Unlock()
					s.call(&caller, map[bool]string{false: "ADD", true: "DEL"}[has], name, confs[network])
				}
			})
		}
		for p := range 2 {
			people.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(p)))
				for range turns {
					word := words[random.IntN(len(words))]
					killed := *mine
					killed.trace = fmt.Sprint("kill=", 20+random.IntN(200))
					a := killed.word(word...)
					if a.code == exitKilled {
						killed.trace = fmt.Sprint("stretch=", random.IntN(1000))
						a = killed.word(word...)
					}
					if a.code == exitKilled || strings.Contains(a.stderr, "panic") {
						t.Errorf("%v: %+v", word, a)
					}
				}
			})
		}
		people.Wait()
		close(stop)
		callers.Wait()
		// One word that a person types alone gets every network to one program.
		if a := mine.word("install", plugins); a.code != 0 {
			t.Fatalf("%+v", a)
		}
		for _, network := range networks {
			if a := mine.takeOver(network); a.code != 0 {
				t.Fatalf("%+v", a)
			}
		}
		s.compareIn(networks, func(network string) map[string]string { return mine.holders(network, 24) })
		if a := mine.word("uninstall", plugins); a.code != 0 {
			t.Fatalf("%+v", a)
		}
		if theirs, err := isTheirs(dest); err != nil || !theirs {
			t.Errorf("host-local is not back: %v", err)
		}
		s.compareIn(networks, func(network string) map[string]string {
			held := map[string]string{}
			for _, h := range n.files(network).Holdings {
				held[h.Attachment.Container] = h.Addresses[0].String() + "/24"
			}
			return held
		})
	}
}

// compareIn compares each network, whose pods have its name, with what was told.
func (s *handoverStorm) compareIn(networks []string, held func(string) map[string]string) {
	s.Helper()
	for _, network := range networks {
		part := &handoverStorm{T: s.T, told: map[string]string{}}
		for pod, address := range s.told {
			if strings.HasPrefix(pod, network+"-") {
				part.told[pod] = address
			}
		}
		part.compare(held(network))
	}
}
