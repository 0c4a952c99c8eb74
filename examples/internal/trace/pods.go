package trace

import (
	_ "embed"
	"io"
)

// builtinPods is the trace of pods that is replayed when no file is named: a day of the 40 machines,
// with jobs at night, two hours of many visitors, and pods that crash and come again.
//
//go:embed pods.csv
var builtinPods string

// Pod is one line of a pod trace. Times are seconds from the beginning of the trace.
type Pod struct {
	Name     string
	MilliCPU uint64
	Created  uint64
	Deleted  uint64 // unless it stays
	Stays    bool   // to the end of the trace and beyond
	Node     string // where it ran, if the trace says so
}

// PodColumns are the columns of a pod trace, in any order; others may stand beside them. A pod
// without deletion time stays.
var PodColumns = []string{"name", "cpu_milli", "creation_time", "deletion_time"}

// NodeColumn may stand beside them: where each pod ran.
const NodeColumn = "node"

// LoadPods reads the pod trace in a file, or the built-in one when the name is empty. Names are
// unique, no pod goes before it comes, and the nodes that it names are among those given.
func LoadPods(file string, nodes []Node) ([]Pod, error) {
	known := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		known[n.Name] = true
	}
	return Load(file, "pods.csv", builtinPods, func(file string, r io.Reader) ([]Pod, error) {
		return readPods(file, r, known)
	})
}

func readPods(file string, r io.Reader, nodes map[string]bool) ([]Pod, error) {
	t := NewTable(file, r, PodColumns)
	var pods []Pod
	seen := map[string]int{} // name -> line
	for t.Next() {
		p := Pod{
			Name:     t.Name("name", "pod", seen),
			MilliCPU: t.Count("cpu_milli"),
			Created:  t.Time("creation_time"),
		}
		if p.Stays = t.Text("deletion_time") == ""; !p.Stays {
			if p.Deleted = t.Time("deletion_time"); p.Deleted < p.Created {
				t.Fail("deletion_time", "deletion_time is %d: the pod comes at %d only", p.Deleted, p.Created)
			}
		}
		if t.Has(NodeColumn) {
			if p.Node = t.Text(NodeColumn); p.Node != "" && !nodes[p.Node] {
				t.Fail(NodeColumn, "there is no node %q", p.Node)
			}
		}
		pods = append(pods, p)
	}
	return pods, t.err
}
