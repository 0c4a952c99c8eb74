//go:build unix

package plugin

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A page of ../../docs is a procedure. These tests run the commands that stand in it, in the
// order in which they stand there, on several nodes on which pods come and go.

// clusterNode is a node with a directory of plugins, in which calls find what is there at the
// time, and the container of a DaemonSet.
type clusterNode struct {
	*node
	plugins string
	storm   *handoverStorm
	daemon  *exec.Cmd
	stop    chan struct{}
	pods    sync.WaitGroup
}

func newClusterNode(t *testing.T) *clusterNode {
	n := &clusterNode{node: newNode(t, ours(t)), plugins: filepath.Join(t.TempDir(), "bin"), storm: &handoverStorm{T: t, told: map[string]string{}}}
	if err := os.Mkdir(n.plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(other(t, "host-local"), n.installed()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	return n
}

func (n *clusterNode) installed() string { return filepath.Join(n.plugins, "host-local") }

// runPods starts pods that come and go; a call that is to be tried again is.
func (n *clusterNode) runPods(networks ...string) {
	n.stop = make(chan struct{})
	for w, network := range networks {
		n.pods.Go(func() {
			runtime := &node{TB: n.TB, dir: n.dir, bin: n.installed()}
			for k, last := 0, 0; ; k++ {
				select {
				case <-n.stop: // a pod is left, so that there is something to compare
					if last++; last > 5 || n.storm.holds(network+"-") {
						return
					}
				default:
				}
				pod := fmt.Sprint(network, "-", w, "-", k%5)
				n.storm.mu.Lock()
				_, has := n.storm.told[pod]
				n.storm.mu.Unlock()
				n.storm.call(runtime, map[bool]string{false: "ADD", true: "DEL"}[has], pod, conf(network, one24))
			}
		})
	}
}

// holds reports whether a pod whose name begins so was told an address.
func (s *handoverStorm) holds(prefix string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pod := range s.told {
		if strings.HasPrefix(pod, prefix) {
			return true
		}
	}
	return false
}

// restPods ends that and compares what the network with each name holds with what was told.
func (n *clusterNode) restPods(held func(network string) map[string]string, networks ...string) {
	n.Helper()
	close(n.stop)
	n.pods.Wait()
	all := map[string]string{}
	for _, network := range networks {
		got := held(network)
		part := &handoverStorm{T: n.storm.T, told: maps.Clone(n.storm.told)}
		maps.DeleteFunc(part.told, func(pod, _ string) bool { return !strings.HasPrefix(pod, network+"-") })
		part.compare(got)
		maps.Copy(all, got)
	}
	if len(all) == 0 {
		n.Error("no pod holds anything")
	}
}

// start runs the container of a manifest, which the kubelet starts again when it ends.
func (n *clusterNode) start(args []string) {
	n.Helper()
	n.kill()
	args = slices.Clone(args)
	for i, a := range args {
		a = strings.Replace(a, "-root", "-data-dir", 1)
		a = strings.Replace(a, "/host", n.dir, 1)
		a = strings.Replace(a, "/opt/cni/bin", n.plugins, 1)
		args[i] = strings.Replace(a, "1m", "20ms", 1)
	}
	for _, life := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond, time.Hour} {
		n.daemon = exec.Command(n.bin, args...)
		if err := n.daemon.Start(); err != nil {
			n.Fatal(err)
		}
		if life < time.Hour {
			time.Sleep(life)
			n.kill()
		}
	}
}

func (n *clusterNode) kill() {
	if n.daemon != nil {
		n.daemon.Process.Kill()
		n.daemon.Wait()
		n.daemon = nil
	}
}

// follow runs the commands of a page on all nodes and returns what those below each heading
// printed, together.
func follow(t *testing.T, nodes []*clusterNode, page string, applied func(*clusterNode) bool) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]string{}
	heading, code := "", false
	var args []string // of the DaemonSet that was applied
	var selects string
	var labelled bool
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "# "))
		case line == "```":
			code = !code
		case !code:
		case heading == "Undo":
			printed[heading] += line + "\n"
		case words[0] == "cni-ipam":
			for _, n := range nodes {
				a := n.word(strings.Fields(strings.ReplaceAll(line, "/opt/cni/bin", n.plugins))[1:]...)
				if a.code != 0 {
					t.Errorf("%s: %s: %+v", page, line, a)
				}
				printed[heading] += a.stdout
			}
		case strings.HasPrefix(line, "kubectl apply -f "), strings.HasPrefix(line, "kubectl label node NODE "):
			if words[1] == "apply" {
				args, selects = containerArgs(t, words[3])
				labelled = selects == ""
			} else if labelled = words[4] == selects; !labelled {
				t.Errorf("%s: %s, and the DaemonSet selects %q", page, line, selects)
			}
			if !labelled { // the DaemonSet has no node yet
				continue
			}
			for _, n := range nodes {
				n.start(args)
			}
			for _, n := range nodes {
				for i := 0; !applied(n); i++ {
					if i > 2000 {
						t.Fatalf("%s: %s has no effect", page, line)
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
		case strings.HasPrefix(line, "kubectl delete -f "):
			for _, n := range nodes {
				n.kill()
			}
		default:
			t.Errorf("%s: nobody knows how to run %q", page, line)
		}
	}
	return printed
}

// containerArgs returns the arguments of the container of a manifest, and the label that it wants a node to have.
func containerArgs(t *testing.T, manifest string) (args []string, selects string) {
	t.Helper()
	data, err := os.ReadFile("../../" + manifest)
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Metadata struct{ Name string }
		Spec     struct {
			Template struct {
				Spec struct {
					Containers   []struct{ Args []string }
					NodeSelector map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(data, &set); err != nil || set.Metadata.Name != "cni-ipam" {
		t.Fatal(set, err)
	}
	for key, value := range set.Spec.Template.Spec.NodeSelector {
		if key != "kubernetes.io/os" {
			selects = key + "=" + value
		}
	}
	return set.Spec.Template.Spec.Containers[0].Args, selects
}

// undo runs the commands with which a swap back is undone. The DaemonSet alone leaves the nodes
// as they are.
func undo(t *testing.T, nodes []*clusterNode, commands string, back func(*clusterNode) bool) {
	t.Helper()
	for _, n := range nodes {
		args, _ := containerArgs(t, "deploy/daemonset.yaml")
		n.start(args)
		time.Sleep(100 * time.Millisecond)
		if !back(n) {
			t.Error("a DaemonSet undoes what a person did")
		}
		n.kill()
	}
	for line := range strings.Lines(commands) {
		for _, n := range nodes {
			if a := n.word(strings.Fields(strings.Replace(line, "/opt/cni/bin", n.plugins, 1))[1:]...); a.code != 0 {
				t.Errorf("%s: %+v", line, a)
			}
		}
	}
}

func TestSwapProcedures(t *testing.T) {
	count := 3
	if testing.Short() {
		count = 2
	}
	var nodes []*clusterNode
	for range count {
		nodes = append(nodes, newClusterNode(t))
	}
	networks := []string{"blue", "red"}
	original, err := os.ReadFile(other(t, "host-local"))
	if err != nil {
		t.Fatal(err)
	}
	is := func(n *clusterNode, want []byte) bool {
		got, err := os.ReadFile(n.installed())
		return err == nil && bytes.Equal(got, want)
	}
	mine, err := os.ReadFile(ours(t))
	if err != nil {
		t.Fatal(err)
	}
	oursHold := func(n *clusterNode) func(string) map[string]string {
		return func(network string) map[string]string { return n.holders(network, 24) }
	}
	for _, n := range nodes {
		n.runPods(networks...)
	}
	time.Sleep(100 * time.Millisecond)
	for round := range 2 {
		printed := follow(t, nodes, "swap-in.md", func(n *clusterNode) bool { return is(n, mine) })
		if got := printed["See that it worked"]; strings.Count(got, ": ok, ") != count*len(networks) {
			t.Errorf("swap in: %s", got)
		}
		for _, n := range nodes {
			n.kill()
			for _, network := range networks { // what was not called for
				n.takeOver(network)
			}
			n.restPods(oursHold(n), networks...)
			n.runPods(networks...)
		}
		printed = follow(t, nodes, "swap-back.md", func(n *clusterNode) bool {
			return is(n, original) && !slices.ContainsFunc(networks, func(network string) bool { return n.place(network).has() })
		})
		for line := range strings.Lines(printed["See that it worked"]) {
			if !strings.HasSuffix(line, "  host-local\n") {
				t.Errorf("swap back: %s", line)
			}
		}
		for _, n := range nodes {
			n.restPods(func(network string) map[string]string {
				held := map[string]string{}
				for _, h := range n.files(network).Holdings {
					held[h.Attachment.Container] = h.Addresses[0].String() + "/24"
				}
				return held
			}, networks...)
			n.runPods(networks...)
		}
		if round > 0 {
			continue
		}
		undo(t, nodes, printed["Undo"], func(n *clusterNode) bool { return is(n, original) })
	}
	for _, n := range nodes {
		close(n.stop)
		n.pods.Wait()
	}
}
