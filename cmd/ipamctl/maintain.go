package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
)

// stepView is a step of a repair in JSON.
type stepView struct {
	Space string `json:"space,omitempty"`
	Step  int    `json:"step"`
	Text  string `json:"text"`
}

func (a *app) repairCommand() *cobra.Command {
	var same string
	c := &cobra.Command{
		Use: "repair", Args: cobra.NoArgs,
		Short: "Repair the findings of check, or with --dry-run print the steps",
		Long: "repair prints the steps that repair what check finds, asks for confirmation and carries them out, each in one commit on the\n" +
			"records that were checked; a step whose records have changed meanwhile is left for the next check. With --dry-run it prints the\n" +
			"steps, and a word that stands for them, and ends with status 1 if there are any. With --same WORD it carries out what was printed\n" +
			"under that word, or nothing. It releases nothing: gc does that, after a grace period. Without --space it repairs every space, as\n" +
			"check checks every one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.dryRun && same != "" {
				return fail(exitUsage, "--same goes without --dry-run, which prints the word")
			}
			if a.dryRun {
				return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
					plans, n, err := a.plans(ctx, e)
					if err != nil {
						return err
					}
					if err := a.printSteps(plans); err != nil || n == 0 {
						return err
					}
					a.note("carry out these steps with repair --same %s", wordOf(plans))
					return errFindings
				})
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				// The question ends with a signal, as the change itself does not.
				return a.repair(ctx, e, same, func() error { return a.confirm(cmd.Context(), "repair the store", "repair") })
			})
		},
	}
	c.Flags().StringVar(&same, "same", "", "only if the steps are those for which --dry-run printed this `WORD`")
	return a.destructiveFlags(c)
}

// wordOf returns a word that stands for plans: other steps, or steps on other records or revisions, have another one.
func wordOf(plans []plan) string {
	var all []string // steps come in any order
	for _, p := range plans {
		for _, s := range p.steps {
			all = append(all, fmt.Sprintf("%q %+v\n", p.in.Space(), s))
		}
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "")))
	return hex.EncodeToString(sum[:8])
}

// plan is what repairs a space.
type plan struct {
	in    *ipset.Engine
	steps []audit.Step
}

// plans returns what repairs each space, and how many steps that is.
func (a *app) plans(ctx context.Context, e *ipset.Engine) (all []plan, n int, err error) {
	err = a.eachSpace(ctx, e, func(in *ipset.Engine) error {
		r, err := a.examine(ctx, in, nil)
		if err == nil {
			all, n = append(all, plan{in, r.Repair}), n+len(r.Repair)
		}
		return err
	})
	return all, n, err
}

func (a *app) printSteps(plans []plan) error {
	l := &listing{columns: []string{"STEP", "RECORDS", "WHAT"}, empty: "nothing is to be repaired"}
	for _, p := range plans {
		for _, s := range p.steps {
			v := stepView{p.in.Space(), len(l.rows) + 1, s.Text}
			text := s.Text
			if v.Space != "" {
				text = fmt.Sprintf("space %q: %s", v.Space, text)
			}
			l.add(fmt.Sprint(v.Step), v, fmt.Sprint(v.Step), fmt.Sprint(len(s.Ops)), text)
		}
	}
	return a.print(l)
}

// repair carries out what it has shown, if it is what was planned under a word, and confirmed.
func (a *app) repair(ctx context.Context, e *ipset.Engine, same string, confirm func() error) error {
	plans, n, err := a.plans(ctx, e)
	if err != nil {
		return err
	}
	if err := a.printSteps(plans); err != nil || n == 0 {
		return err
	}
	if is := wordOf(plans); same != "" && same != is {
		return fail(exitConflict, "these are not the steps that were planned: the store has changed; look at them, then give --same %s", is)
	}
	if err := confirm(); err != nil {
		return err
	}
	done := 0
	for _, p := range plans {
		m, rerr := p.in.Operator().Repair(ctx, p.steps)
		if done += m; rerr != nil {
			err = rerr
			break
		}
	}
	a.note("%d of %s done", done, plural(n, "step"))
	if err == nil && done < n {
		return fail(exitConflict, "%s left: the records changed meanwhile; run repair again", plural(n-done, "step"))
	}
	return err
}

func (a *app) sweepCommand() *cobra.Command {
	var args alloc.SweepArgs
	c := &cobra.Command{
		Use: "sweep", Args: cobra.NoArgs,
		Short: "End leases and cooldowns, give back idle blocks, forget old request keys",
		Long: "sweep writes what time has ended: leases and cooldowns. It forgets old request keys and sticky handles, and with --idle-after\n" +
			"or --unselected it gives back blocks. It works in all spaces unless --space names one. It is not needed beside a service that calls Operator.Sweep every minute.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.loadLabels(cmd); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				if args.Unselected && a.labels.cut {
					return fail(exitRefused, "%s: the list of hosts has no end, and a host that it lacks would lose its empty blocks; the last line of a list that is complete is \"# end\"", a.labels.from)
				}
				defer a.progress("sweeping")()
				var s alloc.Swept
				var returned []string
				spaces := 0
				err := a.eachSpace(ctx, e, func(in *ipset.Engine) error {
					if args.Unselected {
						if err := a.needLabels(ctx, in, anyUse); err != nil {
							return err
						}
					}
					is, err := in.Operator().Sweep(ctx, args)
					s.Advanced, s.Requests, s.Sticky, spaces = s.Advanced+is.Advanced, s.Requests+is.Requests, s.Sticky+is.Sticky, spaces+1
					for _, p := range texts(is.Returned) {
						if in.Space() != "" {
							p = in.Space() + ":" + p
						}
						returned = append(returned, p)
					}
					return err
				})
				if err != nil {
					return err
				}
				if returned == nil {
					returned = []string{}
				}
				l := &listing{single: true, columns: []string{"SPACES", "ADVANCED BLOCKS", "RETURNED BLOCKS", "REQUEST KEYS", "STICKY HANDLES"}}
				l.add("sweep", map[string]any{"spaces": spaces, "advanced": s.Advanced, "returned": returned, "requests": s.Requests, "sticky": s.Sticky},
					fmt.Sprint(spaces), fmt.Sprint(s.Advanced), strings.TrimSpace(fmt.Sprint(len(returned), " ", strings.Join(returned, " "))),
					fmt.Sprint(s.Requests), fmt.Sprint(s.Sticky))
				return a.print(l)
			})
		},
	}
	flags := c.Flags()
	flags.DurationVar(&args.IdleAfter, "idle-after", 0, "give back blocks that have been empty for this long; 0 gives back none")
	flags.IntVar(&args.Keep, "keep", 0, "blocks that a host keeps all the same")
	flags.BoolVar(&args.Unselected, "unselected", false, "give back empty blocks of pools that no longer select their host; a host that --labels lacks is selected by none")
	flags.DurationVar(&args.RequestsAfter, "requests-after", 0, "forget request keys that are older (default 24h)")
	flags.DurationVar(&args.StickyAfter, "sticky-after", 0, "forget what sticky handles had that held nothing for this long (default 720h)")
	return a.labelsFlag(a.dryRunFlag(c))
}

// candidates are those of one store, space and coverage: an address with its sequence number means another allocation elsewhere.
type candidates struct {
	Store  string      `json:"store"`
	Space  string      `json:"space"`
	Covers string      `json:"covers"`
	All    []candidate `json:"candidates"`
}

// candidate is an address that was held and not in use when gc last looked.
type candidate struct {
	Address  netip.Addr `json:"address"`
	Sequence uint64     `json:"sequence"`
	Handle   string     `json:"handle"`
	Since    time.Time  `json:"since"`
}

func (a *app) gcCommand() *cobra.Command {
	var v coverage
	var file, most string
	var grace time.Duration
	c := &cobra.Command{
		Use: "gc --in-use FILE --pool POOL --candidates FILE", Args: cobra.NoArgs,
		Short: "Release addresses that a list of those in use has lacked for a grace period",
		Long: "gc compares what is held with the list, in the pools that the list covers. An address that the list lacks becomes a\n" +
			"candidate, kept in the file of candidates. A candidate for the grace period is released, all addresses of its handle\n" +
			"or none, guarded by its sequence number. Addresses without handle are never released. If more than --max would be released,\n" +
			"nothing is, and the status is 6. Run it every few minutes. It prints the candidates and what it released, and asks for\n" +
			"confirmation.\n\n" + inUseHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "in-use", "candidates"); err != nil {
				return err
			}
			limit, err := parseShare(most)
			if err != nil {
				return err
			}
			scope := candidates{Store: storeurl.Redact(cmp.Or(a.store, a.getenv("IPAMCTL_STORE"))), Space: a.space, Covers: v.text()}
			before, err := scope.read(file)
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), "release leaked addresses", "gc"); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				if err := v.load(ctx, a, e); err != nil {
					return err
				}
				if err := a.others(ctx, e); err != nil {
					return err
				}
				after, err := a.collect(ctx, e, newLeaks(&v, before, a.now().UTC(), grace), limit)
				if err != nil || a.dryRun {
					return err
				}
				scope.All = after
				return scope.write(file)
			})
		},
	}
	v.flags(c)
	c.Flags().StringVar(&file, "candidates", "", "the `FILE` that remembers the candidates; made if it does not exist")
	c.Flags().StringVar(&most, "max", "5%", "release at most this `SHARE` of what is held in these pools, or this number of addresses")
	c.Flags().DurationVar(&grace, "grace", 10*time.Minute, "how long an address is a candidate before it is released")
	return a.destructiveFlags(c)
}

// others says which spaces gc leaves alone: addresses of several spaces may be equal, so a list is of one.
func (a *app) others(ctx context.Context, e *ipset.Engine) error {
	return a.eachSpace(ctx, e, func(in *ipset.Engine) error {
		if in.Space() != "" && !a.spaceGiven {
			a.note("the list is of the space without a name; the space %q is left alone: name it with --space", in.Space())
		}
		return nil
	})
}

// parseShare reads "5%" or "20": the most that may be released of a number of addresses.
func parseShare(text string) (func(held int) int, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 31)
	if err != nil || strings.HasSuffix(text, "%") && n > 100 {
		return nil, fail(exitUsage, "--max %q: a number of addresses, or a share up to 100%%", text)
	}
	if !strings.HasSuffix(text, "%") {
		return func(int) int { return int(n) }, nil
	}
	return func(held int) int { return held * int(n) / 100 }, nil
}

// readCandidates reads the file of candidates; one that does not exist has none.
func readCandidates(file string) (*candidates, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := new(candidates)
	if err := json.Unmarshal(text, all); err != nil || all.Store == "" {
		return nil, fail(exitDamaged, "%s: not a file of candidates: %v", file, err)
	}
	return all, nil
}

// read returns the candidates of the same scope in a file. It refuses a file of another one.
func (c *candidates) read(file string) ([]candidate, error) {
	is, err := readCandidates(file)
	if err != nil || is == nil {
		return nil, err
	}
	if is.Store != c.Store || is.Space != c.Space || is.Covers != c.Covers {
		return nil, fail(exitRefused, "%s: the candidates of %s, space %q, %s, and not of %s, space %q, %s: name another file",
			file, is.Store, is.Space, is.Covers, c.Store, c.Space, c.Covers)
	}
	return is.All, nil
}

// write replaces the file of candidates in one step.
func (c *candidates) write(file string) error {
	if c.All == nil {
		c.All = []candidate{}
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// holder is one allocation of an address.
type holder struct {
	addr netip.Addr
	seq  uint64
}

// leaks decides which holders of addresses are leaked, and since when.
type leaks struct {
	*coverage
	inUse  map[netip.Addr]bool
	before map[holder]candidate // of earlier rounds
	now    time.Time
	grace  time.Duration

	seen  map[holder]candidate
	order []holder
}

func newLeaks(v *coverage, before []candidate, now time.Time, grace time.Duration) *leaks {
	l := &leaks{coverage: v, inUse: map[netip.Addr]bool{}, before: map[holder]candidate{}, now: now, grace: grace, seen: map[holder]candidate{}}
	for _, u := range v.list {
		l.inUse[u.Address] = true
	}
	for _, c := range before {
		l.before[holder{c.Address, c.Sequence}] = c
	}
	return l
}

// live tells a collector what to do with an allocation.
func (l *leaks) live(al alloc.Allocation) alloc.Liveness {
	if l.inUse[al.Address] || !l.covers(al.Address) || !l.frees(al.Address) || l.young(al) {
		return alloc.Alive
	}
	k := holder{al.Address, al.Seq}
	if _, known := l.seen[k]; !known {
		first := l.now
		if was, known := l.before[k]; known && was.Handle == al.Handle && !al.Since.After(was.Since) {
			first = was.Since
		}
		l.seen[k] = candidate{al.Address, al.Seq, al.Handle, first}
		l.order = append(l.order, k)
	}
	if l.now.Sub(l.seen[k].Since) >= l.grace {
		return alloc.Gone
	}
	return alloc.Leaked
}

// tooMany returns an error if more than the limit allows would be released.
func (l *leaks) tooMany(ctx context.Context, e *ipset.Engine, limit func(held int) int) error {
	held, gone, listed := 0, 0, 0
	for al, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		if al.Cooling {
			continue
		}
		if l.inUse[al.Address] {
			listed++
		}
		if !l.covers(al.Address) {
			continue
		}
		for h := range al.Holders() {
			if held++; h.Handle != "" && l.live(h) == alloc.Gone {
				gone++
			}
		}
	}
	if gone > 0 && listed == 0 {
		return fail(exitRefused, "the list has no address that is held: it is of another network")
	}
	if most := limit(held); gone > most {
		return fail(exitRefused, "%d of %s that are held would be released, and --max allows %d: look at the list, then raise it", gone, plural(held, "address"), most)
	}
	return nil
}

// collect runs one round and returns the candidates for the next.
func (a *app) collect(ctx context.Context, e *ipset.Engine, leaked *leaks, limit func(held int) int) ([]candidate, error) {
	if err := leaked.tooMany(ctx, e, limit); err != nil {
		return nil, err
	}
	done := a.progress("collecting")
	released, err := e.Operator().NewCollector(0).Collect(ctx, leaked.live)
	done()
	l := &listing{columns: []string{"ADDRESS", "STATE", "HANDLE", "SINCE"}, empty: "everything that is held is in use"}
	for _, al := range released {
		k := holder{al.Address, al.Seq}
		a.addCandidate(l, leaked.seen[k], "released")
		delete(leaked.seen, k)
	}
	var after []candidate
	due := 0
	for _, k := range leaked.order {
		if c, still := leaked.seen[k]; still {
			after = append(after, c)
			a.addCandidate(l, c, "candidate")
			if leaked.now.Sub(c.Since) >= leaked.grace {
				due++
			}
		}
	}
	if err == nil && due > 0 {
		a.note("%s past the grace period not released: the handle also holds an address that is in use, not in these pools or not yet due",
			plural(due, "address"))
	}
	return after, a.printThen(l, err)
}

func (a *app) addCandidate(l *listing, c candidate, state string) {
	l.add(c.Address.String(), map[string]string{"address": c.Address.String(), "state": state, "handle": c.Handle, "since": timeText(c.Since)},
		c.Address.String(), state, c.Handle, timeText(c.Since))
}
