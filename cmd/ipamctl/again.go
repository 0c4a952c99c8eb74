package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"go4.org/netipx"
	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// readAgain reads the addresses and prefixes of a file without the reader of its format, and notes those that are not in the inventory,
// because diff compares with the file and not with what import makes of it.
func readAgain(format, name string, inv *inventory) error {
	known := map[string]bool{}
	text, err := json.Marshal(inv)
	if err == nil {
		err = eachPlace(text, func(at string) { known[at] = true })
	}
	if err != nil {
		return err
	}
	for _, in := range append(slices.Collect(maps.Values(inv.Spaces)), inv) {
		for _, at := range append(slices.Clone(in.over), in.cooling...) {
			known[at] = true
		}
	}
	note := func(at string) {
		p, _ := parsePrefix(at)
		if !known[at] && !slices.ContainsFunc(inv.refused, func(r refusal) bool {
			return slices.ContainsFunc(r.ranges, func(in netipx.IPRange) bool { return in.Overlaps(netipx.RangeOfPrefix(p)) })
		}) {
			known[at] = true
			inv.refused = append(inv.refused, refusal{what: at, why: errors.New("import does not read it")})
		}
	}
	if format == "host-local" {
		files, err := os.ReadDir(name)
		for _, f := range files {
			place(strings.ReplaceAll(f.Name(), "_", ":"), note)
		}
		return err
	}
	if format == "csv" {
		for _, cell := range strings.FieldsFunc(string(inv.text), func(r rune) bool { return strings.ContainsRune(",;\"\r\n", r) }) {
			at, _, _ := strings.Cut(strings.TrimSpace(cell), "/") // the prefix length of an address is dropped
			place(at, note)
		}
		return nil
	}
	if text, err = yaml.YAMLToJSON(inv.text); err != nil {
		return err
	}
	return eachPlace(text, note)
}

// place calls f with a text that is an address or a prefix.
func place(text string, f func(string)) {
	if p, err := netip.ParsePrefix(text); err == nil {
		f(p.Masked().String())
	} else if at, err := netip.ParseAddr(text); err == nil {
		f(at.Unmap().String())
	}
}

// eachPlace calls f with each address and prefix in a document, apart from what Kubernetes says about an object. The allocations of a
// block of Calico are numbers in its prefix.
func eachPlace(text []byte, f func(string)) error {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			place(v, f)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for key, e := range v {
				if key != "metadata" && key != "status" {
					walk(e)
				}
			}
			in, err := netip.ParsePrefix(fmt.Sprint(v["cidr"]))
			held, _ := v["allocations"].([]any)
			who, _ := v["attributes"].([]any)
			for n, of := range held {
				if k, taken := of.(float64); err == nil && taken && !(int(k) < len(who) && strings.Contains(fmt.Sprint(who[int(k)]), "windows-reserved")) {
					at := addr.FromAddr(in.Addr()).Add(addr.U128{Lo: uint64(n)})
					f(map[bool]netip.Addr{true: at.Addr4(), false: at.Addr6()}[in.Addr().Is4()].String())
				}
			}
		}
	}
	var v any
	err := json.Unmarshal(text, &v)
	walk(v)
	return err
}
