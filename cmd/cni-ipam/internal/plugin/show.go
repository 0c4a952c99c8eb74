package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// shown is a network in JSON.
type shown struct {
	Network     string       `json:"network"`
	By          string       `json:"by"` // the plugin that has it
	Attachments int          `json:"attachments"`
	Addresses   int          `json:"addresses"`
	Holdings    []shownEntry `json:"holdings"`
	// Last is the address that each range set gave last.
	Last map[int]netip.Addr `json:"last"`
}

type shownEntry struct {
	Container string       `json:"container"`
	Interface string       `json:"interface"`
	Addresses []netip.Addr `json:"addresses"`
	By        string       `json:"by"`
	User      string       `json:"user,omitempty"`  // the container that uses a key
	Scope     string       `json:"scope,omitempty"` // node and network, of a shared network
}

// show prints who holds what, also where host-local has the network.
func (w *word) show(names []string) error {
	all := []shown{}
	err := w.each(names, func(p place) error {
		v, err := p.look(false)
		if err == nil {
			all = append(all, list(p, v))
		}
		return err
	})
	if w.json {
		out := json.NewEncoder(w.stdout)
		out.SetIndent("", "  ")
		return errors.Join(err, out.Encode(all))
	}
	table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	for _, n := range all {
		for _, h := range n.Holdings {
			for _, a := range h.Addresses {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s", n.Network, a, printable(h.Container), printable(h.Interface), h.By)
				if h.User != "" {
					fmt.Fprintf(table, "\tused by %s", printable(h.User))
				}
				if h.Scope != "" {
					fmt.Fprintf(table, "\t%s", printable(h.Scope))
				}
				fmt.Fprintln(table)
			}
		}
	}
	return errors.Join(err, table.Flush())
}

// printable replaces what a terminal would obey: a name comes from a file that another
// program wrote.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// list returns the holdings of a network.
func list(p place, v view) shown {
	n := shown{Network: p.network, By: "host-local", Holdings: []shownEntry{}, Last: v.files.Cursors}
	add := func(by string, hs []hostlocal.Holding) {
		for _, h := range hs {
			ifname, _, _ := strings.Cut(h.Attachment.Interface, "/") // the network is in the scope
			n.Holdings = append(n.Holdings, shownEntry{h.Attachment.Container, ifname, h.Addresses, by, h.User.Container, h.Scope})
			n.Attachments++
			n.Addresses += len(h.Addresses)
		}
	}
	if v.ours {
		n.By, n.Last = program(), v.state.Cursors
		add(n.By, v.state.Holdings)
	}
	add("host-local", v.files.Holdings)
	return n
}
