package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
)

// stepView is a step of a repair in JSON.
type stepView struct {
	Step     int      `json:"step"`
	Text     string   `json:"text"`
	Releases []string `json:"releases,omitempty"`
}

func (a *app) repairCommand() *cobra.Command {
	var plan, apply bool
	var file string
	c := &cobra.Command{
		Use: "repair --plan|--apply", Args: cobra.NoArgs,
		Short: "Plan and carry out what repairs the findings of check",
		Long: "repair --plan prints the steps that would repair what check finds, and ends with status 1 if there are any.\n" +
			"repair --apply carries them out, each in one commit on the records that were checked; a step whose records have changed\n" +
			"meanwhile is left for the next check. --apply asks for confirmation.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if plan == apply {
				return fail(exitUsage, "repair needs --plan or --apply")
			}
			if plan {
				return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
					r, err := a.examine(ctx, e, file)
					if err != nil {
						return err
					}
					if err := a.printSteps(r.Repair); err != nil || len(r.Repair) == 0 {
						return err
					}
					return errFindings
				})
			}
			if err := a.confirm("repair the store", "repair"); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error { return a.repair(ctx, e, file) })
		},
	}
	c.Flags().BoolVar(&plan, "plan", false, "print the steps")
	c.Flags().BoolVar(&apply, "apply", false, "carry them out")
	c.Flags().StringVar(&file, "in-use", "", "release what is held and not in this `FILE` too; see check")
	return a.destructiveFlags(c)
}

func (a *app) printSteps(steps []ipset.Step) error {
	l := &listing{columns: []string{"STEP", "RECORDS", "RELEASES", "WHAT"}, empty: "nothing is to be repaired"}
	for i, s := range steps {
		v := stepView{Step: i + 1, Text: s.Text}
		for _, r := range s.Releases {
			v.Releases = append(v.Releases, r.Address.String())
		}
		l.add(fmt.Sprint(i+1), v, fmt.Sprint(i+1), fmt.Sprint(len(s.Ops)), fmt.Sprint(len(s.Releases)), s.Text)
	}
	return a.print(l)
}

func (a *app) repair(ctx context.Context, e *ipset.Engine, file string) error {
	r, err := a.examine(ctx, e, file)
	if err != nil {
		return err
	}
	if err := a.printSteps(r.Repair); err != nil {
		return err
	}
	done, err := e.Repair(ctx, r.Repair)
	if len(r.Repair) > 0 {
		a.note("%d of %s done", done, plural(len(r.Repair), "step"))
	}
	if err == nil && done < len(r.Repair) {
		return fail(exitConflict, "%s left: the records changed meanwhile; run repair again", plural(len(r.Repair)-done, "step"))
	}
	return err
}

func (a *app) sweepCommand() *cobra.Command {
	var args ipset.SweepArgs
	c := &cobra.Command{
		Use: "sweep", Args: cobra.NoArgs,
		Short: "End leases and cooldowns, give back idle blocks, forget old request keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				defer a.progress("sweeping")()
				s, err := e.Sweep(ctx, args)
				if err != nil {
					return err
				}
				l := &listing{single: true, columns: []string{"ADVANCED BLOCKS", "RETURNED BLOCKS", "REQUEST KEYS", "STICKY HANDLES"}}
				l.add("sweep", map[string]any{"advanced": s.Advanced, "returned": texts(s.Returned), "requests": s.Requests, "sticky": s.Sticky},
					fmt.Sprint(s.Advanced), strings.TrimSpace(fmt.Sprint(len(s.Returned), " ", strings.Join(texts(s.Returned), " "))),
					fmt.Sprint(s.Requests), fmt.Sprint(s.Sticky))
				return a.print(l)
			})
		},
	}
	flags := c.Flags()
	flags.DurationVar(&args.IdleAfter, "idle-after", 0, "give back blocks that have been empty for this long; 0 gives back none")
	flags.IntVar(&args.Keep, "keep", 0, "blocks that a host keeps all the same")
	flags.BoolVar(&args.Unselected, "unselected", false, "give back empty blocks of pools that no longer select their host")
	flags.DurationVar(&args.RequestsAfter, "requests-after", 0, "forget request keys that are older (default 24h)")
	flags.DurationVar(&args.StickyAfter, "sticky-after", 0, "forget what sticky handles had that held nothing for this long (default 720h)")
	return a.dryRunFlag(c)
}

// candidate is an address that was held and not in use when gc last looked.
type candidate struct {
	Address  netip.Addr `json:"address"`
	Sequence uint64     `json:"sequence"`
	Handle   string     `json:"handle"`
	Since    time.Time  `json:"since"`
}

func (a *app) gcCommand() *cobra.Command {
	var inUse, file string
	var grace time.Duration
	c := &cobra.Command{
		Use: "gc --in-use FILE --candidates FILE", Args: cobra.NoArgs,
		Short: "Release what a list of addresses in use has lacked for a grace period",
		Long: "gc compares what is held with the list. An address that is not in it becomes a candidate, which the file of candidates\n" +
			"remembers; one that is a candidate for the grace period is released, all addresses of its handle or none, guarded by its\n" +
			"sequence number. Addresses without handle are never released. Run it every few minutes. It prints the candidates and what\n" +
			"it released, and asks for confirmation.\n\n" + inUseHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "in-use", "candidates"); err != nil {
				return err
			}
			uses, err := a.readInUse(inUse)
			if err != nil {
				return err
			}
			before, err := readCandidates(file)
			if err != nil {
				return err
			}
			if err := a.confirm("release leaked addresses", "gc"); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				after, err := a.collect(ctx, e, uses, before, grace)
				if err != nil || a.dryRun {
					return err
				}
				return writeCandidates(file, after)
			})
		},
	}
	c.Flags().StringVar(&inUse, "in-use", "", "the addresses in use: a `FILE`, - for standard input")
	c.Flags().StringVar(&file, "candidates", "", "the `FILE` that remembers the candidates; made if it does not exist")
	c.Flags().DurationVar(&grace, "grace", 10*time.Minute, "how long an address is a candidate before it is released")
	return a.destructiveFlags(c)
}

// readCandidates reads the file of candidates; one that does not exist has none.
func readCandidates(file string) ([]candidate, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []candidate
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fail(exitDamaged, "%s: not a file of candidates: %v", file, err)
	}
	return all, nil
}

// writeCandidates replaces the file of candidates in one step.
func writeCandidates(file string, all []candidate) error {
	if all == nil {
		all = []candidate{}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// collect runs one round and returns the candidates for the next.
func (a *app) collect(ctx context.Context, e *ipset.Engine, uses []ipset.InUse, before []candidate, grace time.Duration) ([]candidate, error) {
	type key struct {
		addr netip.Addr
		seq  uint64
	}
	now, inUse, since := a.now().UTC(), map[netip.Addr]bool{}, map[key]time.Time{}
	for _, u := range uses {
		inUse[u.Address] = true
	}
	for _, c := range before {
		since[key{c.Address, c.Sequence}] = c.Since
	}
	seen := map[key]candidate{}
	var order []key
	live := func(al ipset.Allocation) ipset.Liveness {
		if inUse[al.Address] {
			return ipset.Alive
		}
		k := key{al.Address, al.Seq}
		if _, known := seen[k]; !known {
			first, was := since[k]
			if !was {
				first = now
			}
			seen[k] = candidate{al.Address, al.Seq, al.Handle, first}
			order = append(order, k)
		}
		if now.Sub(seen[k].Since) >= grace {
			return ipset.Gone
		}
		return ipset.Leaked
	}
	done := a.progress("collecting")
	released, err := e.NewCollector(0).Collect(ctx, live)
	done()
	l := &listing{columns: []string{"ADDRESS", "STATE", "HANDLE", "SINCE"}, empty: "everything that is held is in use"}
	for _, al := range released {
		k := key{al.Address, al.Seq}
		a.addCandidate(l, seen[k], "released")
		delete(seen, k)
	}
	var after []candidate
	for _, k := range order {
		if c, still := seen[k]; still {
			after = append(after, c)
			a.addCandidate(l, c, "candidate")
		}
	}
	return after, a.printThen(l, err)
}

func (a *app) addCandidate(l *listing, c candidate, state string) {
	l.add(c.Address.String(), map[string]string{"address": c.Address.String(), "state": state, "handle": c.Handle, "since": timeText(c.Since)},
		c.Address.String(), state, c.Handle, timeText(c.Since))
}
