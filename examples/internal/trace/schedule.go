package trace

import (
	"cmp"
	"fmt"
	"slices"
)

// Placement is how a node is chosen for a pod whose trace names none.
type Placement string

const (
	// Least takes the node with the smallest share of its cores in use, so that pods spread; of equal
	// ones that which has waited longest for a pod.
	Least Placement = "least"
	// Most takes the node with the largest share in use that still has the cores for the pod, so that
	// pods gather; of equal ones the first. Without such a node it is as Least.
	Most Placement = "most"
)

// ParsePlacement returns the placement of that name.
func ParsePlacement(s string) (Placement, error) {
	if p := Placement(s); p == Least || p == Most {
		return p, nil
	}
	return "", fmt.Errorf("%q is no placement: least or most", s)
}

// String says in words where pods go.
func (p Placement) String() string {
	if p == Most {
		return "each on the most loaded node with room"
	}
	return "each on the least loaded node"
}

// Event is one pod that comes to a node or goes from it.
type Event struct {
	Time  uint64 // seconds from the beginning of the trace
	Pod   *Pod
	Node  string
	Comes bool
}

// Schedule returns what happens to the pods, in time order: each one comes and, unless it stays,
// goes. At one time, pods go before others come.
//
// The cores that pods ask for are no limit: the most a node can be is the most loaded one.
func Schedule(nodes []Node, pods []Pod, p Placement) []Event {
	events := make([]Event, 0, 2*len(pods))
	for i := range pods {
		pod := &pods[i]
		events = append(events, Event{Time: pod.Created, Pod: pod, Comes: true})
		if !pod.Stays {
			events = append(events, Event{Time: pod.Deleted, Pod: pod})
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.rank(), b.rank()))
	})
	s := newScheduler(nodes)
	for i := range events {
		e := &events[i]
		if e.Comes {
			e.Node = s.place(e.Pod, p)
		} else {
			e.Node = s.remove(e.Pod)
		}
	}
	return events
}

// rank orders the events of one time. A pod that goes in the second in which it came goes last.
func (e *Event) rank() int {
	switch {
	case e.Comes:
		return 1
	case e.Pod.Created == e.Pod.Deleted:
		return 2
	default:
		return 0
	}
}

// machine is a node as the scheduler sees it.
type machine struct {
	name      string
	cores     uint64 // thousandths
	requested uint64 // likewise, by the pods that are there
	last      int    // when it was given its last pod: the count of pods placed until then
}

// load returns the share of its cores that is in use.
func (m *machine) load() float64 { return float64(m.requested) / float64(max(m.cores, 1)) }

// scheduler knows which pod is where.
type scheduler struct {
	machines []machine
	byName   map[string]*machine
	where    map[*Pod]*machine
	placed   int
}

func newScheduler(nodes []Node) *scheduler {
	s := &scheduler{machines: make([]machine, len(nodes)), byName: map[string]*machine{}, where: map[*Pod]*machine{}}
	for i, n := range nodes {
		s.machines[i] = machine{name: n.Name, cores: n.MilliCPU}
		s.byName[n.Name] = &s.machines[i]
	}
	return s
}

// place puts a pod on a node and returns the node's name.
func (s *scheduler) place(pod *Pod, p Placement) string {
	m := s.byName[pod.Node]
	if m == nil && p == Most {
		m = s.most(pod.MilliCPU)
	}
	if m == nil {
		m = s.least()
	}
	s.placed++
	m.requested += pod.MilliCPU
	m.last = s.placed
	s.where[pod] = m
	return m.name
}

// least returns the least loaded machine.
func (s *scheduler) least() *machine {
	best := &s.machines[0]
	for i := range s.machines {
		m := &s.machines[i]
		if c := cmp.Or(cmp.Compare(m.load(), best.load()), cmp.Compare(m.last, best.last)); c < 0 {
			best = m
		}
	}
	return best
}

// most returns the most loaded machine that has so many cores left, or nil.
func (s *scheduler) most(cores uint64) (best *machine) {
	for i := range s.machines {
		if m := &s.machines[i]; m.requested+cores <= m.cores && (best == nil || m.load() > best.load()) {
			best = m
		}
	}
	return best
}

// remove takes a pod from its node and returns the node's name.
func (s *scheduler) remove(pod *Pod) string {
	m := s.where[pod]
	m.requested -= pod.MilliCPU
	delete(s.where, pod)
	return m.name
}

// Peak returns after how many events most pods are there, for the first time, and how many.
func Peak(events []Event) (after, pods int) {
	there := 0
	for i := range events {
		if !events[i].Comes {
			there--
			continue
		}
		if there++; there > pods {
			after, pods = i+1, there
		}
	}
	return after, pods
}
