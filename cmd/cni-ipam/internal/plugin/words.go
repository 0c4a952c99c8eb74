package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/ipalloc/ipalloc"
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
			all = append(all, list(name, v))
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

// list returns the holdings of a network.
func list(name string, v view) shown {
	n := shown{Network: name, By: "host-local", Holdings: []shownEntry{}, Last: v.files.Cursors}
	add := func(by string, hs []hostlocal.Holding) {
		for _, h := range hs {
			ifname, _, _ := strings.Cut(h.Attachment.Interface, "/") // the network is in the scope
			n.Holdings = append(n.Holdings, shownEntry{h.Attachment.Container, ifname, h.Addresses, by, h.Scope})
			n.Attachments++
			n.Addresses += len(h.Addresses)
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

// gc releases what was held before the list of containers was made and is not in it. An
// attachment that is made while the list is made must not be released: so the snapshot comes
// before the list is read, and a file must be newer than what is held. A list that is cut, of
// another runtime, or that would release much is refused before anything is released.
func (w *word) gc(names []string) error {
	switch {
	case w.keep == "":
		return errors.New("gc needs -keep FILE, the ids of the containers that are alive")
	case len(names) == 0 && w.conf == nil:
		return errors.New("gc needs the name of each NETWORK whose containers FILE lists")
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
	alive, made, err := w.readKeep()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		p := w.place(name)
		held := slices.DeleteFunc(slices.Clone(before[name]), func(h hostlocal.Holding) bool { return p.shared != nil && h.Scope != p.scope() })
		gone := slices.DeleteFunc(slices.Clone(held), func(h hostlocal.Holding) bool { return keeps(alive, h.Attachment.Container) })
		known := slices.ContainsFunc(before[name], func(h hostlocal.Holding) bool { return keeps(alive, h.Attachment.Container) })
		e := w.believe(p, made, known, len(held), len(gone))
		if before[name] = gone; e != nil {
			err = errors.Join(err, fmt.Errorf("network %s: %w", name, e))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if err != nil && !w.dryRun {
			return err
		}
		if e := w.release(name, before[name]); e != nil {
			err = errors.Join(err, fmt.Errorf("network %s: %w", name, e))
		}
	}
	return err
}

// listTime is how long a container may be missing in the list after its ADD.
const listTime = time.Minute

// believe returns why a list that was made at a time is not to be believed about a network in
// which it would release some of what is held. known says that something held is in the list.
func (w *word) believe(p place, made time.Time, known bool, held, gone int) error {
	n, err := strconv.Atoi(strings.TrimSuffix(w.most, "%"))
	if err != nil || n < 0 {
		return fmt.Errorf("-max %q is neither a number nor a share like 5%%", w.most)
	}
	if strings.HasSuffix(w.most, "%") {
		n = held * n / 100
	}
	changed, err := os.Stat(p.file(stateName))
	switch {
	case gone == 0:
		return nil
	case !known:
		return errors.New("no container in the list holds an address: is it the list of another runtime? (cni-ipam free releases one by one)")
	case gone > n:
		return fmt.Errorf("%d of %d attachments would be released, and -max allows %d: look at them by -n, then raise it", gone, held, n)
	case made.IsZero():
		return nil
	case p.shared != nil:
		return errors.New("when a shared network changed last is not on record: use -keep - and make the list while gc runs")
	case err != nil || changed.ModTime().Add(listTime).After(made):
		return fmt.Errorf("the list is older than what is held, or less than %s newer: use -keep - and make it while gc runs", listTime)
	}
	return nil
}

// shortID is the least length of an id that stands for a longer one.
const shortID = 12

// keeps reports whether a container is in the list, perhaps under a shortened id.
func keeps(alive []string, container string) bool {
	return slices.ContainsFunc(alive, func(id string) bool {
		return id == container || len(id) >= shortID && strings.HasPrefix(container, id)
	})
}

// readFile reads a file, or stdin for "-", and returns when it was made, the zero time for a pipe.
func (w *word) readFile(path string) (data []byte, made time.Time, err error) {
	in := w.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, made, err
		}
		defer f.Close()
		in = f
	}
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			made = info.ModTime()
		}
	}
	data, err = io.ReadAll(in)
	return data, made, err
}

// endOfList is the last line of a list that is complete.
const endOfList = "# end"

// readKeep reads the ids of containers, one a line.
func (w *word) readKeep() (ids []string, made time.Time, err error) {
	data, made, err := w.readFile(w.keep)
	text, whole := strings.CutSuffix(strings.TrimSpace(string(data)), endOfList)
	if err == nil && (!whole || text != "" && !strings.HasSuffix(text, "\n")) {
		err = fmt.Errorf("%s has no end: the last line of a list that is complete is %q", w.keep, endOfList)
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			ids = append(ids, f[0])
		}
	}
	return ids, made, err
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
			err := s.engine.Verify(s.ctx, h.Attachment, h.Addresses...)
			if errors.Is(err, ipalloc.ErrNotFound) || errors.Is(err, ipalloc.ErrMismatch) {
				continue // released since
			}
			var freed []netip.Addr
			if err == nil {
				freed, err = s.engine.Del(s.ctx, h.Attachment)
			}
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
	}
	if err == nil && lost > 0 && len(all.Holdings)+len(all.Cursors) == 0 {
		err = fmt.Errorf("none of the %d records that were read is of use", found.Records)
	}
	switch {
	case err == nil:
	case errors.Is(err, ipalloc.ErrVersion):
		return fmt.Errorf("%w, which is not damaged: export the network with that program, then import it with this one", err)
	case !w.lost || errors.Is(err, fs.ErrNotExist):
		return err
	default:
		fmt.Fprintf(w.stdout, "%s: %v\n", name, err)
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
	return engine.Salvage(ctx)
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
