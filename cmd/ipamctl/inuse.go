package main

import (
	"bufio"
	"bytes"
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
  the output of kubectl get pods -A -o json; pods that have ended do not count
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
	if v.list, v.at, err = a.readInUse(v.file); err != nil {
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

// readInUse reads a list of what is in use.
func (a *app) readInUse(file string) (list []audit.InUse, taken time.Time, err error) {
	text, err := a.readFile(file)
	if err != nil {
		return nil, taken, err
	}
	text = bytes.TrimSpace(text)
	if len(text) > 0 && text[0] == '{' {
		list, err = podsInUse(file, text)
	} else {
		list, taken, err = parseInUse(file, text)
	}
	if err == nil && len(list) == 0 {
		err = fail(exitRefused, "%s: the list is empty", file)
	}
	return list, taken, err
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

// podsInUse reads a list of pods as kubectl prints it. Pods that have ended, and those on the host's
// network, use no address.
func podsInUse(file string, text []byte) ([]audit.InUse, error) {
	var pods struct {
		Kind     string
		Metadata listMetadata
		Items    []struct {
			Metadata struct{ Namespace, Name string }
			Spec     struct{ HostNetwork bool }
			Status   struct {
				Phase  string
				PodIPs []struct{ IP string }
			}
		}
	}
	if err := json.Unmarshal(text, &pods); err != nil {
		return nil, fail(exitUsage, "%s: %v", file, err)
	}
	if pods.Items == nil {
		return nil, fail(exitUsage, "%s: not a list of pods", file)
	}
	if err := pods.Metadata.whole(file); err != nil {
		return nil, err
	}
	var list []audit.InUse
	for _, p := range pods.Items {
		if p.Spec.HostNetwork || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			at, err := parseAddr(ip.IP)
			if err != nil {
				return nil, fail(exitUsage, "%s: pod %s/%s: %q is not an IP address", file, p.Metadata.Namespace, p.Metadata.Name, ip.IP)
			}
			list = append(list, audit.InUse{Address: at})
		}
	}
	return list, nil
}
