package trace

import (
	_ "embed"
	"io"
)

// builtinNodes is the trace that is replayed when no file is named: 40 machines of a small company,
// in the order in which they joined.
//
//go:embed nodes.csv
var builtinNodes string

// Node is one line of a node trace.
type Node struct {
	Name      string
	MilliCPU  uint64
	MemoryMiB uint64
	GPUs      uint64
	Model     string // of the GPUs
}

// NodeColumns are the columns of a node trace, in any order. gpu, the number of GPUs, and model may
// stand beside them, and others.
var NodeColumns = []string{"sn", "cpu_milli", "memory_mib"}

// LoadNodes reads the node trace in a file, or the built-in one when the name is empty. Names are
// unique, and there is at least one node.
func LoadNodes(file string) ([]Node, error) { return Load(file, "nodes.csv", builtinNodes, readNodes) }

func readNodes(file string, r io.Reader) ([]Node, error) {
	t := NewTable(file, r, NodeColumns)
	var nodes []Node
	seen := map[string]int{} // name -> line
	for t.Next() {
		n := Node{
			Name:      t.Name("sn", "node", seen),
			MilliCPU:  t.Count("cpu_milli"),
			MemoryMiB: t.Count("memory_mib"),
		}
		if t.Has("gpu") {
			n.GPUs = t.Count("gpu")
		}
		if t.Has("model") {
			n.Model = t.Text("model")
		}
		nodes = append(nodes, n)
	}
	if t.err == nil && len(nodes) == 0 {
		return nil, &Error{file, t.Line() + 1, 1, "no node after the header"}
	}
	return nodes, t.err
}
