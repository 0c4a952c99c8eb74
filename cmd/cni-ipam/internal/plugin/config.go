package plugin

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// netConf is what stdin brings: the whole configuration of the plugin that delegates to this one, of which only these
// keys matter here. What not every verb needs stays as it is written until it is needed: a verb is not stopped by
// what it does not look at, and does not pay for it.
type netConf struct {
	Name       string    `json:"name"`
	CNIVersion string    `json:"cniVersion"`
	IPAM       *ipamConf `json:"ipam"`

	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	Args          json.RawMessage `json:"args"`
	PrevResult    json.RawMessage `json:"prevResult"`

	// The attachments that a GC leaves alone. The specification had the second name for a while. A key with null is an
	// empty list, because a runtime in Go writes an empty list that way.
	ValidAttachments json.RawMessage `json:"cni.dev/valid-attachments"`
	Attachments      json.RawMessage `json:"cni.dev/attachments"`

	broken error   // why it could not be read beyond name and version
	caller string  // see callers
	raw    []byte  // all of it
	shared *shared // of a shared network; see complete
}

// ipamConf is the part that is about addresses. The first blocks are host-local's.
type ipamConf struct {
	Type       string          `json:"type"`
	Store      json.RawMessage `json:"store"` // see sharedConf
	DataDir    string          `json:"dataDir"`
	ResolvConf string          `json:"resolvConf"`
	Routes     json.RawMessage `json:"routes"`
	Ranges     json.RawMessage `json:"ranges"`

	// The old form's single range.
	RangeStart json.RawMessage `json:"rangeStart"`
	RangeEnd   json.RawMessage `json:"rangeEnd"`
	Subnet     json.RawMessage `json:"subnet"`
	Gateway    json.RawMessage `json:"gateway"`

	// What host-local does not know. See options.
	RebootLeases  json.RawMessage `json:"rebootLeases"`
	RefuseDamaged json.RawMessage `json:"refuseDamaged"`
	StatusFull    json.RawMessage `json:"statusFull"`
	Exclude       json.RawMessage `json:"exclude"`
	BootIDFile    json.RawMessage `json:"bootIDFile"`
}

// options are the keys that host-local does not know.
type options struct {
	rebootLeases  bool             // the first call after a reboot releases what was added before it
	refuseDamaged bool             // a damaged state is refused also after a reboot
	statusFull    bool             // STATUS fails if a range is full
	boot          string           // what bootIDFile says
	exclude       []netipx.IPRange // addresses that are not handed out
}

// options reads them. With the error come those that could be read.
func (c *ipamConf) options() (o options, err error) {
	file := defaultBootID
	var exclude []string
	for _, k := range []struct {
		name string
		part json.RawMessage
		into any
	}{
		{"rebootLeases", c.RebootLeases, &o.rebootLeases}, {"refuseDamaged", c.RefuseDamaged, &o.refuseDamaged},
		{"statusFull", c.StatusFull, &o.statusFull}, {"exclude", c.Exclude, &exclude}, {"bootIDFile", c.BootIDFile, &file},
	} {
		if e := decode(k.part, k.into); e != nil && err == nil {
			err = badConf("ipam.%s: %v", k.name, e)
		}
	}
	for _, text := range exclude {
		s, e := parseSpan(text)
		if e != nil && err == nil {
			err = badConf("ipam.exclude: %v", e)
		}
		o.exclude = append(o.exclude, s)
	}
	if len(c.Store) > 0 && o.rebootLeases {
		o.rebootLeases = false
		err = cmp.Or(err, badConf("ipam.rebootLeases needs a state of the node's own, not ipam.store"))
	}
	var e error
	if o.boot, e = readLine(file); o.rebootLeases && (e != nil || o.boot == "") {
		o.rebootLeases = false
		if err == nil {
			err = badConf("ipam.rebootLeases needs to know the boot: %s: %v", file, e)
		}
	}
	return o, err
}

// readLine reads the first bytes of a file, such as what identifies the present boot.
func readLine(path string) (string, error) {
	f, err := openRead(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 1024)
	n, err := f.Read(b)
	return strings.TrimSpace(string(b[:n])), err
}

// runtimeConf is the part that the runtime fills in.
type runtimeConf struct {
	IPRanges [][]rangeConf `json:"ipRanges"`
	IPs      []ipText      `json:"ips"`
}

// argsConf is the part that the user fills in.
type argsConf struct {
	CNI *struct {
		IPs []ipText `json:"ips"`
		Key string   `json:"ipam-claim-reference"`
	} `json:"cni"`
}

// decode reads a part that is there.
func decode(part json.RawMessage, into any) error {
	if len(part) == 0 {
		return nil
	}
	if err := json.Unmarshal(part, into); err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	return nil
}

// rangeConf is a range as it is written.
type rangeConf struct {
	RangeStart net.IP      `json:"rangeStart"`
	RangeEnd   net.IP      `json:"rangeEnd"`
	Subnet     types.IPNet `json:"subnet"`
	Gateway    net.IP      `json:"gateway"`
}

// ipText is an address with or without a prefix length, which does not matter. An empty text is the zero Addr.
type ipText struct{ addr netip.Addr }

// UnmarshalText reads an address as the plugins do.
func (t *ipText) UnmarshalText(text []byte) error {
	t.addr = netip.Addr{}
	if len(text) == 0 {
		return nil
	}
	var ip net.IP
	if s := string(text); strings.Contains(s, "/") {
		ip, _, _ = net.ParseCIDR(s)
	} else {
		ip = net.ParseIP(s)
	}
	if ip == nil {
		return fmt.Errorf("invalid IP address %s", text)
	}
	t.addr = toAddr(ip)
	return nil
}

var _ encoding.TextUnmarshaler = (*ipText)(nil)

// toAddr returns an address in the form that says its family.
func toAddr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// envArgs are the arguments in CNI_ARGS that are known.
type envArgs struct {
	types.CommonArgs
	IP ipText
}

const defaultBootID = "/proc/sys/kernel/random/boot_id"

// complete fills in what is missing. Ranges and requests are not looked at.
func (c *netConf) complete() error {
	if c.broken != nil {
		return types.NewError(types.ErrDecodingFailure, c.broken.Error(), "")
	}
	if c.IPAM == nil {
		return badConf("IPAM config missing 'ipam' key")
	}
	if c.IPAM.DataDir == "" {
		c.IPAM.DataDir = defaultDataDir
	}
	return c.readShared()
}

// badConf is an error about the configuration.
func badConf(format string, a ...any) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf(format, a...), "")
}

// dir is where the network's state is.
func (c *netConf) dir() string { return filepath.Join(c.IPAM.DataDir, c.Name) }

// wishes are what an ADD is asked for.
type wishes struct {
	sets      []hostlocal.RangeSet
	requested []netip.Addr
	key       string // of a shared network
	routes    []*types.Route
}

// wishes reads the parts of the configuration that an ADD needs, in host-local's order.
func (c *netConf) wishes(cniArgs string, o options) (w wishes, err error) {
	var runtime runtimeConf
	var args argsConf
	var ranges [][]rangeConf
	for _, p := range []struct {
		part json.RawMessage
		into any
	}{{c.IPAM.Routes, &w.routes}, {c.IPAM.Ranges, &ranges}, {c.RuntimeConfig, &runtime}, {c.Args, &args}} {
		if err := decode(p.part, p.into); err != nil {
			return w, err
		}
	}
	if args.CNI != nil {
		w.key = args.CNI.Key
	}
	old, err := c.IPAM.oldRange()
	if err != nil {
		return w, err
	}
	if w.requested, err = requests(cniArgs, args, runtime); err != nil {
		return w, err
	}
	if w.sets, err = c.rangeSets(runtime.IPRanges, old, ranges); err == nil {
		err = exclude(w.sets, o.exclude)
	}
	return w, err
}

// requests returns the addresses asked for: the one in CNI_ARGS, those of the
// configuration's args, and those of the runtime's configuration.
func requests(cniArgs string, args argsConf, runtime runtimeConf) (as []netip.Addr, err error) {
	var env envArgs
	if err := types.LoadArgs(cniArgs, &env); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	}
	var texts []ipText
	if args.CNI != nil {
		texts = args.CNI.IPs
	}
	if env.IP.addr.IsValid() {
		as = append(as, env.IP.addr)
	}
	for _, t := range append(texts[:len(texts):len(texts)], runtime.IPs...) {
		if !t.addr.IsValid() {
			return nil, badConf("cannot understand ip: IP <nil> not v4 nor v6")
		}
		as = append(as, t.addr)
	}
	return as, nil
}

// oldRange returns the range of the old form as a set; none if there is no subnet.
func (c *ipamConf) oldRange() (set [][]rangeConf, err error) {
	var r rangeConf
	for _, f := range []struct {
		part json.RawMessage
		into any
	}{{c.RangeStart, &r.RangeStart}, {c.RangeEnd, &r.RangeEnd}, {c.Subnet, &r.Subnet}, {c.Gateway, &r.Gateway}} {
		if err := decode(f.part, f.into); err != nil {
			return nil, err
		}
	}
	if r.Subnet.IP == nil {
		return nil, nil
	}
	return [][]rangeConf{{r}}, nil
}

// rangeSets returns the sets of several lists, one list after the other.
func (c *netConf) rangeSets(lists ...[][]rangeConf) ([]hostlocal.RangeSet, error) {
	written := slices.Concat(lists...)
	if len(written) == 0 {
		return nil, badConf("no IP ranges specified")
	}
	sets := make([]hostlocal.RangeSet, len(written))
	v4, v6 := 0, 0
	for i, ranges := range written {
		for _, r := range ranges {
			sets[i] = append(sets[i], r.canonical())
		}
		switch {
		case len(ranges) == 0:
		case sets[i][0].Subnet.Addr().Is4():
			v4++
		default:
			v6++
		}
	}
	canonical, err := hostlocal.Canonical(sets)
	var fault *ipalloc.Error
	var in *hostlocal.SetError
	wrong := errors.As(err, &fault) && errors.As(err, &in)
	if wrong && (in.Range >= 0 || in.Other < 0) { // not that two sets overlap, which comes last
		return nil, badConf("invalid range set %d: %s", in.Set, rangeText(fault, in, written))
	}
	if v4 > 1 || v6 > 1 {
		if several, _ := version.GreaterThanOrEqualTo(c.CNIVersion, "0.3.0"); !several {
			return nil, badConf("CNI version %v does not support more than 1 address per family", c.CNIVersion)
		}
	}
	if wrong {
		return nil, badConf("range set %d overlaps with %d", in.Set, in.Other)
	}
	return canonical, nil
}

// canonical returns the range as the engine takes it; what can't be said in its terms is zero or invalid there, too.
func (r rangeConf) canonical() hostlocal.Range {
	bits, width := r.Subnet.Mask.Size()
	base, _ := netip.AddrFromSlice(r.Subnet.IP)
	if width == 32 {
		base = base.Unmap()
	}
	return hostlocal.Range{
		Subnet: netip.PrefixFrom(base, bits), First: toAddr(r.RangeStart), Last: toAddr(r.RangeEnd), Gateway: toAddr(r.Gateway),
	}
}
