package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A recording is a file of lines, each a change in JSON as watch prints it, in the order of the commits; watch --to writes it. The last revision in it is where
// the next run goes on. At a size it gets the name FILE.1, and that FILE.2, and so on.

// errEnough ends a recording after as many changes as were asked for.
var errEnough = errors.New("enough changes")

// missingChanges is the change that says that the store has forgotten some.
const missingChanges = "changes are missing"

// recording is a recording that is being made.
type recording struct {
	*app
	file string
	size int64
	keep int
	left int // changes until the end; 0 is no end
	mu   sync.Mutex
}

// runWithOthers records what changes of addresses, and what changes beside them since the last line about it.
func (r *recording) runWithOthers(ctx context.Context, e *ipset.Engine, db store.Store) error {
	if _, err := r.last(); err != nil {
		return err
	}
	rest := &follower{app: r.app, db: db, was: map[string]map[string]string{}, f: r.write}
	if exists(r.file) {
		err := readRecording(r.file, func(v changeView, _ time.Time) {
			at := strings.LastIndexByte(v.Change, ' ')
			if at < 0 || !slices.Contains(otherKinds, v.Change[:at]) {
				return
			}
			if (otherRow{v.Change[:at], v.What, v.After}).addTo(rest.was); v.After == "" {
				delete(rest.was[v.Change[:at]], v.What)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := rest.look(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := rest.follow(ctx); ctx.Err() == nil {
			cancel(err)
		}
	})
	err := r.run(ctx, e)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	wg.Wait()
	return err
}

func (r *recording) run(ctx context.Context, e *ipset.Engine) error {
	after, err := r.last()
	if err != nil {
		return err
	}
	for {
		for c, err := range e.Changes(ctx, after) {
			if errors.Is(err, ipalloc.ErrOutOfRange) && after > 0 {
				after = 0
				if err := r.write(changeView{Change: missingChanges, What: "the store no longer has the commits since the last line"}); err != nil {
					return err
				}
				break
			}
			if err != nil {
				return err
			}
			var lines []changeView
			for _, ch := range c.Changes {
				v := changeOf(c.Rev, ch)
				if ch.Unknown { // the first change since the last run, which says all pools and settings
					v.Change = "as found: " + v.Change
				}
				if c.Present {
					// Without a revision, so that a recording that is stopped here begins with the state again.
					v.Rev, v.Change = 0, "as found: "+v.Change
					if since := timeText(ch.Is.Since); since != "" {
						v.After += " since " + since
					}
				}
				lines = append(lines, v)
			}
			if c.Present && !c.More {
				lines = append(lines, changeView{Rev: c.Rev, Change: "recording began", What: "state of this revision"})
			}
			if err := r.write(lines...); err != nil {
				return err
			}
			after = c.Rev
		}
		if after > 0 {
			return ctx.Err()
		}
	}
}

// last returns the last revision of the file, and cuts off a line that was not written to its end.
func (r *recording) last() (rev uint64, err error) {
	if rev, err = r.lastIn(r.file); err != nil || rev > 0 {
		return rev, err
	}
	return r.lastIn(r.file + ".1") // the present file has just begun
}

func (r *recording) lastIn(file string) (rev uint64, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	whole := text[:strings.LastIndexByte(string(text), '\n')+1]
	if len(whole) < len(text) {
		err = os.Truncate(file, int64(len(whole)))
	}
	for line := range strings.Lines(string(whole)) {
		var v changeView
		if json.Unmarshal([]byte(line), &v) != nil {
			return 0, fail(exitDamaged, "%s: not a recording", file)
		}
		rev = max(rev, v.Rev)
	}
	return rev, err
}

// write appends the lines of a commit.
func (r *recording) write(lines ...changeView) error {
	if len(lines) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if info, err := os.Stat(r.file); err == nil && info.Size() >= r.size {
		for n := r.keep - 1; n > 0; n-- {
			_ = os.Rename(fmt.Sprintf("%s.%d", r.file, n), fmt.Sprintf("%s.%d", r.file, n+1)) // which need not exist
		}
		if err := os.Rename(r.file, r.file+".1"); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(r.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var text []byte
	for _, v := range lines {
		v.Time = timeText(r.now())
		line, err := json.Marshal(v)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		text = append(append(text, line...), '\n')
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil || r.left == 0 {
		return err
	}
	for _, v := range lines {
		if v.Rev > 0 {
			r.left--
		}
		if r.left == 0 {
			return errEnough
		}
	}
	return nil
}

func (a *app) historyCommand() *cobra.Command {
	var file, at string
	c := &cobra.Command{
		Use: "history ADDRESS|HANDLE|HOST|POOL|PREFIX|OWNER --recording FILE", Args: cobra.ExactArgs(1),
		Short: "Show what a recording has of an address, a handle, a host, a pool, a prefix or an owner",
		Long: "history prints the changes in which the word is the address, the block or the prefix, the handle, the host or the pool, the oldest\n" +
			"first, from the file of watch --to and its older ones. --at prints who had an\n" +
			"address at a time: the last change of each holder before it.",
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return fail(exitUsage, "history needs the --recording that watch --to made")
			}
			var until time.Time
			if at != "" {
				var err error
				if until, err = time.Parse(time.RFC3339, at); err != nil {
					return fail(exitUsage, "--at %s: a time such as 2026-03-01T12:00:00Z is needed", at)
				}
			}
			return a.history(file, args[0], until)
		},
	}
	c.Flags().StringVar(&file, "recording", "", "the `FILE` of watch --to")
	c.Flags().StringVar(&at, "at", "", "only what held at this `TIME`")
	return c
}

// readRecording calls f with each change in a recording and its time, the oldest first.
func readRecording(file string, f func(v changeView, at time.Time)) error {
	files := []string{file}
	for n := 1; exists(fmt.Sprintf("%s.%d", file, n)); n++ {
		files = append(files, fmt.Sprintf("%s.%d", file, n))
	}
	for _, name := range slices.Backward(files) {
		in, err := os.Open(name)
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var v changeView
			err := json.Unmarshal(lines.Bytes(), &v)
			at, faulty := time.Parse(time.RFC3339, v.Time)
			if err = cmp.Or(err, faulty); err != nil {
				in.Close()
				return fail(exitDamaged, "%s: %v", name, err)
			}
			f(v, at)
		}
		if err := errors.Join(lines.Err(), in.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) history(file, word string, until time.Time) error {
	var found []changeView
	err := readRecording(file, func(v changeView, at time.Time) {
		if (until.IsZero() || !at.After(until)) && v.about(word) {
			found = append(found, v)
		}
	})
	if err != nil {
		return err
	}
	if !until.IsZero() {
		found = lastOfEach(found)
	}
	if len(found) == 0 {
		return fail(exitNotFound, "the recording has nothing of %q", word)
	}
	l := &listing{columns: []string{"TIME", "REVISION", "CHANGE", "WHAT", "BEFORE", "AFTER"}}
	for _, v := range found {
		l.add(v.What, v, v.Time, fmt.Sprint(v.Rev), v.Change, v.What, v.Before, v.After)
	}
	return a.print(l)
}

// about reports whether a change is about what a word names. Changes that are missing are about everything.
func (v *changeView) about(word string) bool {
	if v.What == word || v.Change == missingChanges {
		return true
	}
	for _, text := range []string{v.Before, v.After} {
		f := strings.Fields(text)
		if slices.Contains(f, word) || slices.Contains(f, "host:"+word) {
			return true
		}
	}
	return false
}

// lastOfEach returns the last change of each thing, of an address the last of each holder. A state that was found behind a gap is in
// place of all before it.
func lastOfEach(all []changeView) (last []changeView) {
	type thing struct{ what, holder string }
	later := map[thing]bool{}
	for _, v := range slices.Backward(all) {
		before, after := thing{v.What, holderOf(v.Before)}, thing{v.What, holderOf(v.After)}
		if _, err := netip.ParseAddr(v.What); err != nil {
			before, after = thing{what: v.What}, thing{what: v.What}
		}
		if of := cmp.Or(after, thing{v.What, before.holder}); v.After == "" && !later[before] || v.After != "" && !later[of] {
			last = append(last, v)
		}
		later[before], later[after] = true, true
		if v.Change == missingChanges {
			break
		}
	}
	slices.Reverse(last)
	return last
}

// holderOf returns the handle in the text of a holder.
func holderOf(text string) string {
	for _, behind := range []string{" since ", " until ", " on host:", " on virtual:"} {
		if i := strings.LastIndex(text, behind); i >= 0 {
			text = text[:i]
		}
	}
	return text
}
