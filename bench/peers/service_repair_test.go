package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	iprepair "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	portrepair "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"

	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

// The ranges of the repair loops.
var (
	repairRanges = []string{"10.0.0.0/24", "fd00::/120", "30000-30127"}
	repairPorts  = servicealloc.PortRange{First: 30000, Last: 30127}
)

// A repairCase is what is stored as taken at first, and what happens before each look:
// the services, what is taken and what is given back.
type repairCase struct {
	held     string // with the owners that our registry knows
	looks    []repairLook
	diverges string // the case of the table of divergences, "" if none
}

type repairLook struct{ services, take, release string }

func looks(services ...string) (out []repairLook) {
	for _, s := range services {
		out = append(out, repairLook{services: s})
	}
	return out
}

func always(services string) []repairLook { return looks(services, services, services, services) }

// repairCases are those of the tests of Kubernetes' repair controllers and more.
var repairCases = map[string]repairCase{
	"nothing to do":                {": 10.0.0.17 fd00::5 30001", always("a: 10.0.0.17 fd00::5 30001"), ""},
	"empty":                        {"", always(""), ""},
	"not stored":                   {"", always("a: 10.0.0.17 30001"), ""},
	"one family is not stored":     {"a: 10.0.0.17", always("a: 10.0.0.17 fd00::5"), ""},
	"leaked":                       {": 10.0.0.17 fd00::5 30001", always(""), ""},
	"leaked by a service":          {"a: 10.0.0.17 10.0.0.18 30001 30002", always("a: 10.0.0.17 30002"), ""},
	"leaked twice, then used":      {": 10.0.0.17 30001", looks("", "", "a: 10.0.0.17 30001", "", "", "", ""), ""},
	"used in between":              {": 10.0.0.17", looks("", "a: 10.0.0.17", "", "", "", ""), ""},
	"duplicate":                    {": 10.0.0.17 30001", always("a: 10.0.0.17 30001; b: 10.0.0.17 30001"), ""},
	"duplicate that is not stored": {"", always("a: 10.0.0.17 30001; b: 10.0.0.17 30001/UDP; c: 10.0.0.17"), ""},
	"out of range":                 {"", always("a: 192.168.0.1 29999; b: 10.0.0.0; c: 10.0.0.255; d: fd00:: 30128; e: fd01::1"), ""},
	"beside what is right":         {": 10.0.0.17 30001", always("a: 10.0.0.17 192.168.0.1 30001; b: 10.0.0.18 40000"), ""},
	"one number for TCP and UDP":   {": 30001", always("a: 30001/TCP 30001/UDP"), ""},
	"moved":                        {"a: 10.0.0.17 30001", always("a: 10.0.0.18 30002"), ""},
	"all that there is":            {"", always("a: 10.0.0.1; b: 10.0.0.254; c: fd00::1; d: fd00::ff; e: 30000; f: 30127"), ""},
	"leaks of several ages":        {": 10.0.0.17", []repairLook{{}, {take: "10.0.0.18"}, {take: "30001"}, {}, {}, {}, {}}, ""},
	"the owner is known":           {"b: 10.0.0.17", always("a: 10.0.0.17; b: 10.0.0.17"), svcRepairHolder},
	"one number twice for TCP":     {"", always("a: 30001/TCP 30001/TCP"), svcRepairTwice},
	"leaked again":                 {": 10.0.0.17", []repairLook{{}, {}, {}, {take: "10.0.0.17"}, {}, {}, {}}, svcRepairAgain},
	"leaked, released, leaked":     {": 10.0.0.17", []repairLook{{}, {}, {release: "10.0.0.17"}, {take: "10.0.0.17"}, {}, {}, {}}, svcRepairAgain},
}

// The same objects go through the repair controllers of Kubernetes and through package
// repair, look by look: what is stored afterwards is equal each time, and so is what they
// say about services. A case of the table of divergences must differ.
func TestRepairAgainstKubernetes(t *testing.T) {
	if err := corev1.AddToScheme(legacyscheme.Scheme); err != nil { // where the recorders of events look kinds up
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, d := range serviceDivergences {
		shown[d.Case] = strings.HasPrefix(d.Case, "repair")
	}
	maps.DeleteFunc(shown, func(_ string, repairs bool) bool { return !repairs })
	for name, c := range repairCases {
		theirs, ours := newTheirRepair(t), newOurRepair(t, c.held)
		theirs.change(repairGrants(c.held), true)
		var differ []string
		for i, l := range c.looks {
			theirs.change(repairGrants(": "+l.take), true)
			theirs.change(repairGrants(": "+l.release), false)
			ours.change(l)
			theirs.look(repairGrants(l.services))
			ours.look(repairGrants(l.services))
			for k, spec := range repairRanges {
				held := must(rangealloc.Encode(spec, slices.Collect(ours.reg.All())...))
				if stored := theirs.stores[k].data(); !bytes.Equal(held, stored) {
					differ = append(differ, fmt.Sprintf("look %d: Kubernetes has %v in %s, ours %v", i+1, textsOf(spec, stored), spec, textsOf(spec, held)))
				}
			}
		}
		if said := theirs.end(ours.said); said != fmt.Sprint(slices.Sorted(maps.Keys(ours.said))) {
			differ = append(differ, fmt.Sprintf("Kubernetes says %v, ours %v", said, slices.Sorted(maps.Keys(ours.said))))
		}
		if (len(differ) > 0) != (c.diverges != "") {
			t.Errorf("%s: %s", name, strings.Join(differ, "\n"))
		}
		if err := ours.reg.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		delete(shown, c.diverges)
	}
	for name := range shown {
		t.Errorf("%s: no case", name)
	}
}

func textsOf(spec string, data []byte) string {
	g := must(rangealloc.Decode(spec, data))
	return fmt.Sprint(g.Addrs, g.Ports)
}

// repairGrants reads "a: 10.0.0.17 30001/TCP; b: fd00::5".
func repairGrants(s string) (out []servicealloc.Grant) {
	for _, line := range strings.Split(s, ";") {
		owner, list, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		g := servicealloc.Grant{Owner: strings.TrimSpace(owner)}
		for _, f := range strings.Fields(list) {
			if a, err := netip.ParseAddr(f); err == nil {
				g.Addrs = append(g.Addrs, a)
				continue
			}
			var p servicealloc.Port
			number, proto, _ := strings.Cut(f, "/")
			must(fmt.Sscan(number, &p.Number))
			p.Protocol = servicealloc.Protocol(proto)
			g.Ports = append(g.Ports, p)
		}
		out = append(out, g)
	}
	return out
}

// ourRepair is a registry and the findings of the last look.
type ourRepair struct {
	t        *testing.T
	reg      *servicealloc.Registry
	findings []*repair.Finding
	now      time.Time
	said     map[string]bool
}

func newOurRepair(t *testing.T, held string) *ourRepair {
	o := &ourRepair{t, must(servicealloc.NewRegistry(repairPorts)), nil, time.Unix(1, 0), map[string]bool{}}
	i := servicealloc.RangeInfo{Name: "main", Prefixes: []netip.Prefix{netip.MustParsePrefix(repairRanges[0]), netip.MustParsePrefix(repairRanges[1])}}
	if err := o.reg.SetRange(i); err != nil {
		t.Fatal(err)
	}
	o.reg.Load(repairGrants(held))
	return o
}

// change takes for an unknown owner and gives back of it.
func (o *ourRepair) change(l repairLook) {
	o.reg.Load(repairGrants(": " + l.take))
	for _, g := range repairGrants(": " + l.release) {
		is, _ := o.reg.Get("")
		g.Generation = is.Generation
		if _, _, err := o.reg.Move(g, servicealloc.Grant{}); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *ourRepair) look(services []servicealloc.Grant) {
	o.findings = repair.Diff(o.reg, services, o.findings, o.now)
	o.now = o.now.Add(time.Minute)
	words := map[repair.Kind]string{repair.Missing: "NotAllocated", repair.Duplicate: "AlreadyAllocated", repair.OutOfRange: "OutOfRange"}
	for _, f := range o.findings {
		what := f.Addr.String()
		if !f.Addr.IsValid() {
			what = fmt.Sprint(f.Port.Number)
		}
		if word := words[f.Kind]; word != "" {
			o.said[fmt.Sprint(f.Owner, " ", what, " ", word)] = true
		}
	}
	for _, problem := range repair.Apply(o.reg, repair.Plan(o.findings, 3, 0)) {
		o.t.Error(problem)
	}
}

// A rangeStore keeps a RangeAllocation in memory. Get waits for the next look.
type rangeStore struct {
	mu         sync.Mutex
	is         api.RangeAllocation
	next, done chan struct{}
	stop       chan struct{}
}

func (s *rangeStore) Get() (*api.RangeAllocation, error) {
	select {
	case <-s.next:
	case <-s.stop:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is.DeepCopy(), nil
}

func (s *rangeStore) CreateOrUpdate(r *api.RangeAllocation) error {
	select {
	case <-s.stop:
		return nil
	default:
	}
	s.mu.Lock()
	s.is = *r.DeepCopy()
	s.mu.Unlock()
	s.done <- struct{}{}
	return nil
}

func (s *rangeStore) data() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is.Data
}

// theirRepair is the two repair controllers of Kubernetes on a fake API.
type theirRepair struct {
	t      *testing.T
	stores []*rangeStore // in the order of repairRanges
	stop   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	services corev1.ServiceList
	said     map[string]bool
}

func newTheirRepair(t *testing.T) *theirRepair {
	r := &theirRepair{t: t, stop: make(chan struct{}), said: map[string]bool{}}
	for _, spec := range repairRanges {
		r.stores = append(r.stores, &rangeStore{is: api.RangeAllocation{Range: spec}, next: make(chan struct{}, 1), done: make(chan struct{}, 1), stop: r.stop})
	}
	client := fake.NewSimpleClientset()
	client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return true, r.services.DeepCopy(), nil
	})
	client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		e := a.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		r.hear(e)
		return true, e, nil
	})
	v4, v6 := ipNet(netip.MustParsePrefix(repairRanges[0])), ipNet(netip.MustParsePrefix(repairRanges[1]))
	ips := iprepair.NewRepair(0, client.CoreV1(), client.EventsV1(), v4, r.stores[0], v6, r.stores[1])
	size := int(repairPorts.Last-repairPorts.First) + 1
	ports := portrepair.NewRepair(0, client.CoreV1(), client.EventsV1(), utilnet.PortRange{Base: int(repairPorts.First), Size: size}, r.stores[2])
	for _, run := range []func(func(), chan struct{}){ips.RunUntil, ports.RunUntil} {
		r.ended.Add(1)
		go func() {
			defer r.ended.Done()
			run(func() {}, r.stop)
		}()
	}
	return r
}

var aboutEvent = regexp.MustCompile(`(?:\]:|^Port )([0-9a-f:.]+)`)

// hear notes what an event says of a service: "a 10.0.0.17 OutOfRange".
func (r *theirRepair) hear(e *eventsv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	word := strings.TrimPrefix(strings.TrimPrefix(e.Reason, "ClusterIP"), "Port")
	if m := aboutEvent.FindStringSubmatch(e.Note); m != nil {
		r.said[fmt.Sprint(e.Regarding.Name, " ", m[1], " ", word)] = true
	} else {
		r.said[fmt.Sprint(e.Regarding.Name, " ", e.Note)] = true
	}
}

// change takes, or gives back, what grants list in what is stored.
func (r *theirRepair) change(grants []servicealloc.Grant, take bool) {
	for i, spec := range repairRanges {
		s := r.stores[i]
		s.mu.Lock()
		is := must(rangealloc.Decode(spec, s.is.Data))
		for _, g := range grants {
			if take {
				is.Addrs, is.Ports = append(is.Addrs, g.Addrs...), append(is.Ports, g.Ports...)
				continue
			}
			is.Addrs = slices.DeleteFunc(is.Addrs, func(a netip.Addr) bool { return slices.Contains(g.Addrs, a) })
		}
		s.is.Data = must(rangealloc.Encode(spec, is))
		s.mu.Unlock()
	}
}

// look lets each controller look once at the services.
func (r *theirRepair) look(grants []servicealloc.Grant) {
	r.mu.Lock()
	r.services = corev1.ServiceList{}
	for _, g := range grants {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: g.Owner, Namespace: "ns"}}
		for _, a := range g.Addrs {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, a.String())
			s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		}
		for _, p := range g.Ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.Protocol(p.Protocol), NodePort: int32(p.Number)})
		}
		r.services.Items = append(r.services.Items, s)
	}
	r.mu.Unlock()
	for _, s := range r.stores {
		s.next <- struct{}{}
	}
	for _, s := range r.stores {
		<-s.done
	}
}

// end stops the controllers and returns what they have said of services. Events come
// late: end waits for those that are wanted.
func (r *theirRepair) end(want map[string]bool) string {
	said := func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprint(slices.Sorted(maps.Keys(r.said)))
	}
	for range 200 {
		if said() == fmt.Sprint(slices.Sorted(maps.Keys(want))) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(r.stop)
	r.ended.Wait()
	return said()
}
