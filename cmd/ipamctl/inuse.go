package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
)

const inUseHelp = `FILE lists what is in use, in one of these forms:
  an address on each line, and after it the handle, separated by spaces or a comma; the last line is "# end"
  the output of kubectl get pods,nodes -A -o json: the podIPs of pods and their other networks in the annotation network-status, and the
    tunnel addresses in the annotations of nodes; pods that have ended do not count. Without nodes, nothing counts as unused in a pool
    that serves tunnels
"ipamctl address list --as in-use" writes the first form. A list has a moment: the line "# taken TIME" in it, --taken, or the time of
the file; standard input needs one of the first two. An address that was assigned after it is not taken for unused. A list that is
empty, has no end, says that it goes on, or is older than --max-age is refused, because everything that it lacks would be taken for
unused.`

// readFile reads a file, or standard input under the name "-".
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.stdin)
	}
	text, err := os.ReadFile(name)
	if err == nil && len(text) >= 20 && binary.NativeEndian.Uint32(text[16:]) == boltMagic {
		return nil, fail(exitUsage, "%s is a bbolt file; as a store its name is bolt://%s", name, name)
	}
	return text, err
}

// boltMagic is what bbolt writes after the header of its first page.
const boltMagic = 0xED0CDAED

// coverage is a list of what is in use, and the part of the store that it is complete for.
type coverage struct {
	file  string
	pools []string
	uses  []string
	all   bool
	taken string        // when the list was made, if the flag says so
	age   time.Duration // the most that a list may have

	from      int            // where what is used by the present object begins in the list
	podsAlone bool           // it is of pods, without nodes
	sources   map[string]int // where addresses were found, with their numbers

	list []audit.InUse
	at   time.Time    // the moment of the list
	in   []alloc.Pool // all pools
}

// flags gives a command the flags of a list.
func (v *coverage) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&v.file, "in-use", "", "the addresses in use: a `FILE`, - for standard input")
	f.StringSliceVar(&v.pools, "pool", nil, "the list covers the addresses of this `POOL`; may be repeated")
	f.StringSliceVar(&v.uses, "use", nil, "the list covers the pools that serve no other `USE`: workload, tunnel, loadbalancer")
	f.BoolVar(&v.all, "all-pools", false, "the list covers every pool of the space")
	f.StringVar(&v.taken, "taken", "", "the `TIME` at which the making of the list began, as in 2006-01-02T15:04:05Z")
	f.DurationVar(&v.age, "max-age", time.Hour, "refuse a list that is older")
}

// load reads the list, and the pools of the store. It refuses a list that does not say what it covers.
func (v *coverage) load(ctx context.Context, a *app, e *ipset.Engine) (err error) {
	if len(v.pools)+len(v.uses) == 0 && !v.all {
		return fail(exitUsage, "--in-use: say what the list covers, by --pool, --use or --all-pools; what it does not cover is left alone")
	}
	if err = v.read(a); err != nil {
		return err
	}
	if err := v.moment(a); err != nil {
		return err
	}
	if v.in, err = e.Pools(ctx); err != nil {
		return err
	}
	for _, name := range v.pools {
		if !slices.ContainsFunc(v.in, func(p alloc.Pool) bool { return p.Name == name }) {
			return fail(exitNotFound, "there is no pool %q", name)
		}
	}
	v.say(a)
	return nil
}

// moment settles when the list was made, and refuses one that is too old to act on.
func (v *coverage) moment(a *app) (err error) {
	switch {
	case v.taken != "":
		if v.at, err = time.Parse(time.RFC3339, v.taken); err != nil {
			return fail(exitUsage, "--taken %q: a time such as 2006-01-02T15:04:05Z is needed", v.taken)
		}
	case !v.at.IsZero():
	case v.file == "-":
		return fail(exitUsage, "standard input: it is not known when the list was made; name its --taken, or put a line \"# taken TIME\" into it")
	default:
		info, err := os.Stat(v.file)
		if err != nil {
			return err
		}
		v.at = info.ModTime()
	}
	if age := a.now().Sub(v.at); age > v.age {
		return fail(exitRefused, "%s: the list is %v old, and --max-age allows %v", v.file, age.Round(time.Second), v.age)
	}
	return nil
}

// young reports whether an allocation may be younger than the list, which then says nothing of it. Times of allocations are exact to the
// second.
func (v *coverage) young(al alloc.Allocation) bool {
	return !al.Since.Before(v.at.Truncate(time.Second))
}

// text names what the list covers.
func (v *coverage) text() string {
	if v.all {
		return "all pools"
	}
	of := slices.Concat(v.pools, v.uses)
	for i := range v.uses {
		of[len(v.pools)+i] = "(" + v.uses[i] + ")"
	}
	slices.Sort(of)
	return "pools " + strings.Join(slices.Compact(of), " ")
}

// covers reports whether the list is complete for an address: whether it has to be in the list if it is in use.
func (v *coverage) covers(at netip.Addr) bool {
	if v.all {
		return true
	}
	var of *alloc.Pool
	for i, p := range v.in {
		if p.Prefix.Contains(at) && (of == nil || p.Prefix.Bits() > of.Prefix.Bits()) {
			of = &v.in[i]
		}
	}
	if of == nil {
		return false
	}
	if slices.Contains(v.pools, of.Name) {
		return true
	}
	return len(v.uses) > 0 && !slices.ContainsFunc(usesOf(of.Uses), func(use string) bool { return !slices.Contains(v.uses, use) })
}

// read reads the list of what is in use.
func (v *coverage) read(a *app) error {
	text, err := a.readFile(v.file)
	if err != nil {
		return err
	}
	text = bytes.TrimSpace(text)
	if len(text) > 0 && (text[0] == '{' || bytes.HasPrefix(text, []byte("apiVersion:"))) {
		err = v.readObjects(text)
	} else {
		v.list, v.at, err = parseInUse(v.file, text)
	}
	if err == nil && len(v.list) == 0 {
		err = fail(exitRefused, "%s: the list is empty", v.file)
	}
	return err
}

// parseInUse reads a list of lines, and the moment that is in it.
func parseInUse(file string, text []byte) (list []audit.InUse, taken time.Time, err error) {
	if i := bytes.LastIndexByte(text, '\n'); len(text) > 0 && string(bytes.TrimSpace(text[i+1:])) != "# end" {
		return nil, taken, fail(exitRefused, "%s: the list has no end; the last line of a list that is complete is \"# end\"", file)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, comment, _ := strings.Cut(lines.Text(), "#")
		if at, found := strings.CutPrefix(comment, takenWord); found && taken.IsZero() {
			if taken, err = time.Parse(time.RFC3339, strings.TrimSpace(at)); err != nil {
				return nil, taken, fail(exitUsage, "%s:%d: %q is not a time such as 2006-01-02T15:04:05Z", file, n, at)
			}
		}
		f := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
		if len(f) == 0 || n == 1 && f[0] == "address" {
			continue
		}
		ip, err := parseAddr(f[0])
		if err != nil {
			return nil, taken, fail(exitUsage, "%s:%d: %q is not an IP address", file, n, f[0])
		}
		use := audit.InUse{Address: ip}
		if len(f) > 1 {
			use.Handle = f[1]
		}
		list = append(list, use)
	}
	return list, taken, lines.Err()
}

// takenWord stands before the moment of a list.
const takenWord = " taken "

// listMetadata says whether a list of the API server goes on.
type listMetadata struct {
	Continue           string `json:"continue"`
	RemainingItemCount int64  `json:"remainingItemCount"`
}

// whole refuses a page of a list.
func (m listMetadata) whole(file string) error {
	if m.Continue != "" || m.RemainingItemCount > 0 {
		return fail(exitRefused, "%s: a page of a list that goes on; make the whole list, as kubectl get does", file)
	}
	return nil
}

// Where the addresses of pods and of nodes stand.
var (
	networkStatus   = []string{"k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status"}
	tunnelAddresses = []string{"projectcalico.org/IPv4IPIPTunnelAddr", "projectcalico.org/IPv4VXLANTunnelAddr", "projectcalico.org/IPv6VXLANTunnelAddr",
		"projectcalico.org/IPv4WireguardInterfaceAddr", "projectcalico.org/IPv6WireguardInterfaceAddr"}
)

// podOrNode is an object of a list of what is in use.
type podOrNode struct {
	Kind     string
	Metadata struct {
		Namespace, Name string
		Annotations     map[string]string
	}
	Spec   struct{ HostNetwork bool }
	Status struct {
		Phase, PodIP string
		PodIPs       []struct{ IP string }
	}
}

// readObjects reads a list of pods, and of nodes, as kubectl prints it. Pods that have ended, and those on the host's network, use no address.
func (v *coverage) readObjects(text []byte) error {
	var all struct {
		Kind     string
		Metadata listMetadata
		Items    []podOrNode
	}
	doc, err := oneDocument(text)
	if err == nil {
		err = json.Unmarshal(doc, &all)
	}
	switch {
	case err != nil:
		return fail(exitUsage, "%s: %v", v.file, err)
	case all.Items == nil:
		return fail(exitUsage, "%s: not a list of pods", v.file)
	}
	if err := all.Metadata.whole(v.file); err != nil {
		return err
	}
	pods := false
	v.podsAlone = true
	for _, o := range all.Items {
		v.from = len(v.list)
		switch kind := cmp.Or(o.Kind, strings.TrimSuffix(all.Kind, "List")); {
		case kind == "Node":
			v.podsAlone = false
			for _, key := range tunnelAddresses {
				if at := o.Metadata.Annotations[key]; at != "" {
					if err := v.use("tunnel addresses of nodes", o, at); err != nil {
						return err
					}
				}
			}
		case kind != "Pod" && kind != "":
			return fail(exitUsage, "%s: an object of kind %q; Pod or Node is expected", v.file, kind)
		default:
			if pods = true; o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" {
				continue
			}
			if err := v.readPod(o); err != nil {
				return err
			}
		}
	}
	if !pods {
		return fail(exitUsage, "%s: it has no pod", v.file)
	}
	return nil
}

// readPod adds what a pod uses.
func (v *coverage) readPod(o podOrNode) error {
	ips := []string{o.Status.PodIP}
	for _, ip := range o.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	slices.Sort(ips)
	for _, ip := range slices.Compact(ips) {
		if ip == "" || o.Spec.HostNetwork {
			continue
		}
		if err := v.use("podIPs of pods", o, ip); err != nil {
			return err
		}
	}
	for _, key := range networkStatus {
		var of []struct{ IPs []string }
		if text := o.Metadata.Annotations[key]; text == "" {
			continue
		} else if err := json.Unmarshal([]byte(text), &of); err != nil {
			return fail(exitUsage, "%s: pod %s/%s: %s: %v", v.file, o.Metadata.Namespace, o.Metadata.Name, key, err)
		}
		for _, network := range of {
			for _, ip := range network.IPs {
				if err := v.use("network-status of pods", o, ip); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// use adds an address in use.
func (v *coverage) use(source string, o podOrNode, text string) error {
	address, _, _ := strings.Cut(text, "/")
	at, err := parseAddr(address)
	if err != nil {
		return fail(exitUsage, "%s: %s/%s: %q is not an IP address", v.file, o.Metadata.Namespace, o.Metadata.Name, text)
	}
	if v.sources == nil {
		v.sources = map[string]int{}
	}
	v.sources[source]++
	if !slices.ContainsFunc(v.list[v.from:], func(u audit.InUse) bool { return u.Address == at }) {
		v.list = append(v.list, audit.InUse{Address: at})
	}
	return nil
}

// frees reports whether what the list lacks of a pool is unused: a list of pods alone does not say which addresses tunnels use.
func (v *coverage) frees(at netip.Addr) bool {
	if !v.podsAlone {
		return true
	}
	name := poolAt(v.in, at)
	return !slices.ContainsFunc(v.in, func(p alloc.Pool) bool { return p.Name == name && p.Uses&alloc.Tunnel != 0 })
}

// say prints what was read, and which pools a list of pods alone says nothing of.
func (v *coverage) say(a *app) {
	if len(v.sources) > 0 {
		a.note("in use by %s", droppedText(v.sources))
	}
	for _, p := range v.in {
		if v.podsAlone && p.Uses&alloc.Tunnel != 0 && v.covers(p.Prefix.Addr()) {
			a.note("pool %s serves tunnels, and the list has no nodes: nothing of it counts as unused; list both with kubectl get pods,nodes -A -o json", p.Name)
		}
	}
}
