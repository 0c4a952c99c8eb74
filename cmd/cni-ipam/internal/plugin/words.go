package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
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
	Scope     string       `json:"scope,omitempty"` // node and network, of a shared network
}

// show prints who holds what, also where host-local has the network.
func (w *word) show(names []string) error {
	all := []shown{}
	err := each(func(w *word, name string) error {
		v, err := w.place(name).look(false)
		if err == nil {
			all = append(all, w.list(name, v))
		}
		return err
	})(w, names)
	if w.json {
		out := json.NewEncoder(w.stdout)
		out.SetIndent("", "  ")
		return errors.Join(err, out.Encode(all))
	}
	table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	for _, n := range all {
		if strings.HasPrefix(n.By, sharedScheme) {
			fmt.Fprintf(table, "%s\t-\t-\t-\tshared in %s\n", n.Network, n.By)
		}
		for _, h := range n.Holdings {
			for _, a := range h.Addresses {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s", n.Network, a, printable(h.Container), printable(h.Interface), h.By)
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

// list returns the holdings of a network that are asked for.
func (w *word) list(name string, v view) shown {
	n := shown{Network: name, By: "host-local", Holdings: []shownEntry{}, Last: v.files.Cursors}
	add := func(by string, hs []hostlocal.Holding) {
		for _, h := range hs {
			asked := (w.container == "" || h.Attachment.Container == w.container) &&
				(w.address == "" || slices.ContainsFunc(h.Addresses, func(a netip.Addr) bool { return a.String() == w.address }))
			if asked {
				ifname, _, _ := strings.Cut(h.Attachment.Interface, "/") // the network is in the scope
				n.Holdings = append(n.Holdings, shownEntry{h.Attachment.Container, ifname, h.Addresses, by, h.Scope})
				n.Attachments++
				n.Addresses += len(h.Addresses)
			}
		}
	}
	if v.shared != "" {
		n.By = v.shared
	}
	if v.ours {
		n.By, n.Last = "cni-ipam", v.state.Cursors
		add(n.By, v.state.Holdings)
	}
	add("host-local", v.files.Holdings)
	return n
}

// gc releases what was held before the list of containers was read and is not in it. An
// attachment that is made while the list is made must not be released: so the snapshot
// comes first.
func (w *word) gc(names []string) error {
	if w.imported && w.conf == nil {
		return errors.New("-imported concerns a shared network: name its configuration by -conf FILE")
	}
	if w.keep == "" {
		return errors.New("gc needs -keep FILE, the ids of the containers that are alive")
	}
	before := map[string][]hostlocal.Holding{}
	err := each(func(w *word, name string) error {
		v, err := w.place(name).look(false)
		before[name] = v.state.Holdings
		return errors.Join(err, w.place(name).mustBeLocal())
	})(w, names)
	if err != nil {
		return err
	}
	if w.kept, err = w.readKeep(); err != nil {
		return err
	}
	for name, held := range before {
		p := w.place(name)
		gone := slices.DeleteFunc(held, func(h hostlocal.Holding) bool {
			return w.keeps(h.Attachment.Container) || p.shared != nil && h.Scope != p.scope()
		})
		if e := w.release(name, gone); e != nil {
			err = errors.Join(err, fmt.Errorf("network %s: %w", name, e))
		}
	}
	return err
}

// shortID is the least length of an id that stands for a longer one.
const shortID = 12

// keeps reports whether a container is in the list, perhaps under a shortened id.
func (w *word) keeps(container string) bool {
	return slices.ContainsFunc(w.kept, func(id string) bool {
		return id == container || len(id) >= shortID && strings.HasPrefix(container, id)
	})
}

// readFile reads a file, or stdin for "-".
func (w *word) readFile(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(w.stdin)
	}
	return os.ReadFile(path)
}

// readKeep reads the ids of containers, one a line.
func (w *word) readKeep() (ids []string, err error) {
	data, err := w.readFile(w.keep)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 0 {
			ids = append(ids, f[0])
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s lists no container; to release everything, name one that does not exist", w.keep)
	}
	return ids, nil
}

// release releases attachments, each if it still holds what it held.
func (w *word) release(name string, gone []hostlocal.Holding) error {
	if w.dryRun || len(gone) == 0 {
		for _, h := range gone {
			fmt.Fprintf(w.stdout, "%s: would release %s of %s\n", name, joinAddrs(h.Addresses), printable(h.Attachment.String()))
		}
		return nil
	}
	return w.place(name).releasing(func(s *state) error {
		for _, h := range gone {
			if err := s.engine.Verify(s.ctx, h.Attachment, h.Addresses...); err != nil {
				continue // released since
			}
			freed, err := s.engine.Del(s.ctx, h.Attachment)
			if err != nil {
				return err
			}
			fmt.Fprintf(w.stdout, "%s: released %s of %s\n", name, joinAddrs(freed), printable(h.Attachment.String()))
		}
		return nil
	})
}

// free releases by address or by container.
func (w *word) free(args []string) error {
	if len(args) != 2 {
		return errors.New("free needs NETWORK and ADDRESS or CONTAINER")
	}
	return each(func(w *word, name string) error {
		v, err := w.place(name).look(false)
		if err = errors.Join(err, w.place(name).mustBeLocal()); err != nil {
			return err
		}
		a, _ := netip.ParseAddr(args[1])
		gone := slices.DeleteFunc(v.state.Holdings, func(h hostlocal.Holding) bool {
			return h.Attachment.Container != args[1] && !slices.Contains(h.Addresses, a.Unmap())
		})
		if len(gone) == 0 {
			return fmt.Errorf("this plugin has no attachment that holds %s or is of a container of that name", args[1])
		}
		return w.release(name, gone)
	})(w, args[:1])
}

// repair saves what can be read of damaged states.
func (w *word) repair(names []string) error {
	if len(names) == 0 {
		return errors.New("repair needs the name of a NETWORK")
	}
	return each((*word).repairOne)(w, names)
}

func (w *word) repairOne(name string) error {
	p := w.place(name)
	if p.shared != nil {
		return errors.New("a shared network is repaired in its store")
	}
	if err := p.mustBeLocal(); err != nil && !p.exists(stateName) { // which is not moved into the store while it is damaged
		return err
	}
	lock, err := lockFile(p.file(lockName), false, !w.dryRun, lockWait)
	if err != nil && !(w.dryRun && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	defer lock.Close()
	ctx := context.Background()
	in := p.dir
	if w.dryRun {
		if in, err = os.MkdirTemp("", "cni-ipam-"); err != nil {
			return err
		}
		defer os.RemoveAll(in)
	}
	saved, fresh := filepath.Join(in, stateName+".salvaged.new"), filepath.Join(in, stateName+".repaired.new")
	for _, path := range []string{saved, fresh} { // a call that was killed may have left one
		defer os.Remove(path)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	found, err := boltstore.Salvage(ctx, p.file(stateName), saved)
	var all hostlocal.State
	var lost int
	if err == nil {
		all, lost, err = recovered(ctx, name, saved)
	} else if w.lost && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w.stdout, "%s: %v\n", name, err)
		err = nil
	}
	if err != nil {
		return err
	}
	whole := "nothing is missing"
	if !found.Whole || lost > 0 {
		whole = fmt.Sprintf("%d of %d records were read, %d of them are of no use: some addresses may be free that a container uses; restart the pods of this node, or compare with what runs", found.Records, max(found.Expected, found.Records), lost)
	}
	if w.dryRun {
		fmt.Fprintf(w.stdout, "%s: would save %d attachments; %s\n", name, len(all.Holdings), whole)
		return nil
	}
	if err := written(ctx, name, fresh, all); err != nil {
		return err
	}
	aside, err := p.replaceState(fresh)
	if err == nil {
		fmt.Fprintf(w.stdout, "%s: saved %d attachments; %s; the damaged state is in %s\n", name, len(all.Holdings), whole, aside)
	}
	return err
}

// recovered reads what a salvaged file says.
func recovered(ctx context.Context, network, path string) (all hostlocal.State, lost int, err error) {
	db, err := boltstore.Open(ctx, path, boltstore.Options{ReadOnly: true})
	if err != nil {
		return all, 0, err
	}
	defer db.Close()
	engine, err := hostlocal.New(db, hostlocal.Config{Network: network})
	if err != nil {
		return all, 0, err
	}
	return engine.Recover(ctx)
}

// written makes a state file.
func written(ctx context.Context, network, path string, all hostlocal.State) error {
	db, err := boltstore.Open(ctx, path, boltstore.Options{})
	if err != nil {
		return err
	}
	engine, err := hostlocal.New(db, hostlocal.Config{Network: network})
	if err == nil {
		_, err = engine.Import(ctx, all)
	}
	if err == nil {
		err = engine.Check(ctx)
	}
	return errors.Join(err, db.Close())
}
