package plugin

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// whereabouts is the plugin whose form of configuration is accepted too.
const whereabouts = "whereabouts"

// whereaboutsConf are the keys of whereabouts. Those about its leader election, its logs and
// the API server have no meaning here.
type whereaboutsConf struct {
	whereaboutsRange
	IPRanges          []whereaboutsRange `json:"ipRanges"`
	Gateway           string             `json:"gateway"`
	DNS               types.DNS          `json:"dns"`
	NetworkName       string             `json:"network_name"`
	NodeSliceSize     string             `json:"node_slice_size"`
	Addresses         json.RawMessage    `json:"addresses"`
	ConfigurationPath string             `json:"configuration_path"`
}

// whereaboutsRange is one range, of which an attachment gets one address.
type whereaboutsRange struct {
	Range   string   `json:"range"` // prefix, or FIRST-LAST/LENGTH
	Start   string   `json:"range_start"`
	End     string   `json:"range_end"`
	Exclude []string `json:"exclude"`
}

// defaultsFiles are where whereabouts looks for the keys that the configuration lacks.
var defaultsFiles = []string{
	"/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
	"/etc/cni/net.d/whereabouts.d/whereabouts.conf",
}

// whereabouts reads the form of whereabouts. All networks of one network_name share
// addresses, as by default in whereabouts.
func (k *sharedConf) whereabouts(s *shared, raw []byte) error {
	files := defaultsFiles
	if k.ConfigurationPath != "" {
		files = append([]string{k.ConfigurationPath}, files...)
	}
	for _, path := range files {
		defaults, err := os.ReadFile(path)
		if err != nil {
			continue // most nodes have one of them
		}
		var merged sharedConf
		if err := decode(defaults, &merged); err != nil {
			return badConf("%s: %v", path, err)
		}
		whole := struct {
			IPAM *sharedConf `json:"ipam"`
		}{&merged}
		if err := decode(raw, &whole); err != nil {
			return err
		}
		*k = merged
		break
	}
	switch {
	case k.NodeSliceSize != "":
		return badConf("ipam.node_slice_size: addresses of a shared store need no slices of nodes; leave it out")
	case len(k.Addresses) > 0:
		return badConf("ipam.addresses: static addresses are not served; use the plugin static")
	}
	s.space, s.dns = "whereabouts", k.DNS
	if k.NetworkName != "" {
		s.space += "/" + k.NetworkName
	}
	ranges := k.IPRanges
	if k.Range != "" {
		ranges = append([]whereaboutsRange{k.whereaboutsRange}, ranges...)
	}
	if len(ranges) == 0 {
		return badConf("no IP ranges specified")
	}
	var gateway netip.Addr
	if k.Gateway != "" {
		var err error
		if gateway, err = netip.ParseAddr(k.Gateway); err != nil {
			return badConf("ipam.gateway: %v", err)
		}
	}
	for _, r := range ranges {
		set, err := r.set(gateway.Unmap())
		if err != nil {
			return err
		}
		s.sets = append(s.sets, set)
	}
	_, err := hostlocal.Canonical(s.sets)
	if err != nil {
		return badConf("%v", err)
	}
	return nil
}

// set returns what a range says. Its base and last address are not handed out, start and end
// count if they lie between these, and the gateway is not handed out.
func (w whereaboutsRange) set(gateway netip.Addr) (hostlocal.RangeSet, error) {
	start, prefix, end := w.Start, w.Range, w.End
	if first, rest, ok := strings.Cut(w.Range, "-"); ok {
		last, _, _ := strings.Cut(rest, "/")
		start, prefix, end = first, rest, last
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(prefix))
	if err != nil {
		return nil, badConf("invalid CIDR %s: %v", w.Range, err)
	}
	p = p.Masked()
	if a, err := netip.ParseAddr(strings.TrimSpace(start)); strings.Contains(w.Range, "-") && (err != nil || !p.Contains(a)) {
		return nil, badConf("range %s: %s is not in %s", w.Range, start, p)
	}
	if p.Bits() > p.Addr().BitLen()-2 {
		return nil, badConf("range %s: too small to allocate from", w.Range)
	}
	r := hostlocal.Range{Subnet: p, Start: p.Addr().Next(), End: netipx.PrefixLastIP(p).Prev(), Gateway: gateway}
	if gateway.BitLen() != p.Addr().BitLen() {
		r.Gateway = noGateway(p.Addr().Is4())
	}
	for _, e := range []struct {
		text string
		at   *netip.Addr
	}{{start, &r.Start}, {end, &r.End}} {
		if a, err := netip.ParseAddr(strings.TrimSpace(e.text)); err == nil && a.Compare(p.Addr()) > 0 && a.Less(netipx.PrefixLastIP(p)) {
			*e.at = a
		}
	}
	if r.End.Less(r.Start) { // an end before the start has no meaning there
		r.End = netipx.PrefixLastIP(p).Prev()
	}
	var spans []netipx.IPRange
	for _, text := range w.Exclude {
		s, err := parseSpan(text)
		if err != nil {
			return nil, badConf("ipam.exclude: %v", err)
		}
		spans = append(spans, s)
	}
	sets, err := exclude([]hostlocal.RangeSet{{r}}, spans)
	if err != nil {
		return nil, err
	}
	return sets[0], nil
}

// noGateway stands for no gateway in a range, which has to have one: an address that is in no
// range.
func noGateway(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// poolList are IPPool objects as kubectl prints them: one, or a List.
type poolList struct {
	Kind  string `json:"kind"`
	Items []pool `json:"items"`
	pool
}

// pool is an IPPool of whereabouts: the keys of the allocations are distances from the
// range's base.
type pool struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Range       string `json:"range"`
		Allocations map[string]struct {
			ID     string `json:"id"`
			PodRef string `json:"podref"`
			IfName string `json:"ifname"`
		} `json:"allocations"`
	} `json:"spec"`
}

// holdings returns what pools say that the pools of one network_name hold, and the names of the other pools.
func (l *poolList) holdings(networkName string) (hs []hostlocal.Holding, others []string, err error) {
	items := l.Items
	if l.Kind == "IPPool" {
		items = append(items, l.pool)
	}
	held := map[hostlocal.Attachment][]netip.Addr{}
	for _, p := range items {
		prefix, err := netip.ParsePrefix(p.Spec.Range)
		if err != nil {
			return nil, nil, err
		}
		name := strings.NewReplacer(":", "-", "/", "-").Replace(p.Spec.Range)
		if networkName != "" {
			name = networkName + "-" + name
		}
		if p.Metadata.Name != name {
			others = append(others, p.Metadata.Name)
			continue
		}
		for offset, a := range p.Spec.Allocations {
			at, err := atOffset(prefix.Masked(), offset)
			if err != nil {
				return nil, nil, fmt.Errorf("IPPool %s: %w", p.Metadata.Name, err)
			}
			who := hostlocal.Attachment{Container: a.ID, Interface: a.IfName}
			held[who] = append(held[who], at)
		}
	}
	for who, as := range held {
		slices.SortFunc(as, netip.Addr.Compare)
		hs = append(hs, hostlocal.Holding{Attachment: who, Addresses: as})
	}
	slices.SortFunc(hs, func(a, b hostlocal.Holding) int { return a.Attachment.Compare(b.Attachment) })
	return hs, others, nil
}

// atOffset returns the address at a distance from the base of a prefix.
func atOffset(p netip.Prefix, text string) (a netip.Addr, err error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return a, err
	}
	b := p.Addr().As16()
	low := binary.BigEndian.Uint64(b[8:]) + n
	binary.BigEndian.PutUint64(b[8:], low)
	if a = netip.AddrFrom16(b); p.Addr().Is4() {
		a = a.Unmap()
	}
	if low < n || !p.Contains(a) {
		return a, fmt.Errorf("offset %s lies outside %s", text, p)
	}
	return a, nil
}

// importPools takes over what IPPools say.
func (w *word) importPools(p place) error {
	if w.pools == "" {
		return errors.New("import into a shared network needs -whereabouts POOLS")
	}
	data, _, err := w.readFile(w.pools)
	if err == nil {
		data, err = client.YAML(data)
	}
	var list poolList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(strings.TrimPrefix(p.shared.space, whereabouts), "/")
	hs, others, err := list.holdings(name)
	if err != nil {
		return err
	}
	for _, other := range others {
		fmt.Fprintf(w.stdout, "IPPool %s: not of the network_name %q, left out\n", other, name)
	}
	if w.dryRun {
		fmt.Fprintf(w.stdout, "%s: would take over %d attachments\n", p.network, len(hs))
		return nil
	}
	p.foreign = true
	s, err := p.open()
	if err != nil {
		return err
	}
	left, err := s.engine.Import(s.ctx, hostlocal.State{Holdings: hs})
	for _, e := range left {
		fmt.Fprintln(w.stdout, e)
	}
	if err = errors.Join(err, s.close()); err == nil {
		fmt.Fprintf(w.stdout, "%s: took over %d attachments\n", p.network, len(hs))
	}
	return err
}
