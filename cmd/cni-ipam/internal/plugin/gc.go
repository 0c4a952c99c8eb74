package plugin

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// candidates is a network with the attachments that a gc may release.
type candidates struct {
	place
	held  []hostlocal.Holding // that the gc is about
	gone  []hostlocal.Holding // of these, those that the list does not have
	idle  []hostlocal.Holding // keys that no container uses
	known bool                // the list has a container that holds something
}

// gc releases what was held before the list of containers was made and is not in it. An
// attachment that is made while the list is made must not be released. A list that is cut, of
// another runtime, or that would release much is refused before anything is released.
func (w *word) gc(args []string) error {
	switch {
	case w.keep != "" && w.drained:
		return errors.New("gc takes -keep or -drained: no list is needed where no container lives")
	case w.keep == "" && !w.drained:
		return w.gcThese(args)
	case len(args) == 0 && w.conf == nil:
		return errors.New("gc needs the name of each NETWORK that it is about")
	}
	began := time.Now()
	all, err := w.candidates(args)
	if err != nil {
		return err
	}
	var alive []string
	if !w.drained {
		made := began
		if alive, made, err = w.readKeep(); err != nil {
			return err
		}
		if made.IsZero() { // a pipe, whose writer may have begun before
			made = began
		}
		for i := range all {
			before := made.Add(-listTime)
			if all[i].gone = gone(all[i].held, alive, before); slices.ContainsFunc(alive, isKey) {
				all[i].gone = append(all[i].gone, gone(all[i].idle, alive, before)...)
			}
			all[i].known = len(all[i].gone) == 0 || slices.ContainsFunc(all[i].held, func(h hostlocal.Holding) bool { return keeps(alive, h.Attachment.Container) })
			if e := w.believe(&all[i]); e != nil {
				err = errors.Join(err, fmt.Errorf("network %s: %w", all[i].network, e))
			}
		}
	}
	for _, c := range all {
		if err != nil && !w.dryRun {
			return err
		}
		if e := w.release(c.place, c.gone); e != nil {
			err = errors.Join(err, fmt.Errorf("network %s: %w", c.network, e))
		}
	}
	return err
}

// candidates reads what networks hold; of a shared one, what a node holds.
func (w *word) candidates(names []string) (all []candidates, err error) {
	err = w.each(names, func(p place) error {
		v, err := p.look(false)
		c := candidates{place: p}
		for _, h := range v.state.Holdings {
			switch key := isKey(h.Attachment.Container); {
			case key && h.User == (hostlocal.Attachment{}):
				if name, ours := strings.CutSuffix(h.Attachment.Container, p.keyName("")); ours {
					h.Attachment.Container = name
					c.idle = append(c.idle, h)
				}
			case p.shared != nil && h.Scope != p.scope():
			case key:
				h.Attachment = h.User // whose end takes the key out of use
				c.held = append(c.held, h)
			default:
				c.held = append(c.held, h)
			}
		}
		c.gone = c.held
		all = append(all, c)
		return err
	})
	return all, err
}

// isKey reports whether a container is the name of a key.
func isKey(container string) bool { return strings.HasPrefix(container, keyPrefix) }

// keyPrefix begins the name of a key where that of a container may stand.
const keyPrefix = "key/"

// gcThese releases by address or by container.
func (w *word) gcThese(args []string) error {
	if len(args) != 2 {
		return errors.New("gc needs -keep FILE, the ids of the containers that are alive, or -drained, or NETWORK and ADDRESS or CONTAINER")
	}
	all, err := w.candidates(args[:1])
	if err != nil {
		return err
	}
	a, _ := netip.ParseAddr(args[1])
	found := false
	for _, c := range all {
		these := slices.DeleteFunc(c.held, func(h hostlocal.Holding) bool {
			return h.Attachment.Container != args[1] && !slices.Contains(h.Addresses, a.Unmap())
		})
		for _, h := range c.idle {
			if h.Attachment.Container == keyPrefix+strings.TrimPrefix(args[1], keyPrefix) {
				these = append(these, h)
			}
		}
		found = found || len(these) > 0
		err = errors.Join(err, w.release(c.place, these))
	}
	if !found {
		return fmt.Errorf("network %s: this plugin has no attachment that holds %s or is of a container of that name, and no key of that name that is out of use", args[0], args[1])
	}
	return err
}

// listTime is how long a container may be missing in the list after its ADD.
var listTime = time.Minute

// gone returns what was added before a time and is not in a list.
func gone(held []hostlocal.Holding, alive []string, before time.Time) []hostlocal.Holding {
	return slices.DeleteFunc(slices.Clone(held), func(h hostlocal.Holding) bool {
		return keeps(alive, h.Attachment.Container) || !h.Added.Before(before)
	})
}

// The share of what is held that a gc releases by default: at least some, because few attachments have no small share.
const (
	defaultShare = 5 // percent
	leastShare   = 5 // attachments
)

// believe returns why a list is not to be believed about a network.
func (w *word) believe(c *candidates) error {
	n := max(leastShare, len(c.held)*defaultShare/100)
	if w.most != "" {
		var err error
		if n, err = strconv.Atoi(strings.TrimSuffix(w.most, "%")); err != nil || n < 0 {
			return fmt.Errorf("-max %q is neither a number nor a share like 5%%", w.most)
		}
		if strings.HasSuffix(w.most, "%") {
			n = len(c.held) * n / 100
		}
	}
	switch {
	case !c.known:
		return errors.New("no container in the list holds an address: is it the list of another runtime? If no container lives on the node, use -drained")
	case len(c.gone) > n:
		return fmt.Errorf("%d of %d attachments would be released, and -max allows %d: look at them by -n, then raise it", len(c.gone), len(c.held), n)
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
func (w *word) release(p place, gone []hostlocal.Holding) error {
	if w.dryRun || len(gone) == 0 {
		for _, h := range gone {
			fmt.Fprintf(w.stdout, "%s: would release %s of %s\n", p.network, joinAddrs(h.Addresses), printable(h.Attachment.String()))
		}
		return nil
	}
	return p.releasing(func(s *state) error {
		for _, h := range gone {
			if isKey(h.Attachment.Container) {
				if _, err := s.engine.EndKey(s.ctx, s.keyName(strings.TrimPrefix(h.Attachment.Container, keyPrefix))); err != nil {
					return err
				}
				fmt.Fprintf(w.stdout, "%s: released %s of %s\n", p.network, joinAddrs(h.Addresses), printable(h.Attachment.Container))
				continue
			}
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
			if len(freed) == 0 {
				fmt.Fprintf(w.stdout, "%s: the key of %s keeps %s\n", p.network, printable(h.Attachment.String()), joinAddrs(h.Addresses))
				continue
			}
			fmt.Fprintf(w.stdout, "%s: released %s of %s\n", p.network, joinAddrs(freed), printable(h.Attachment.String()))
		}
		return nil
	})
}
