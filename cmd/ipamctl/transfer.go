package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func (a *app) importCommand() *cobra.Command {
	var format, host string
	var intoOpen, prune bool
	c := &cobra.Command{
		Use: "import FILE|DIRECTORY", Args: cobra.ExactArgs(1),
		Short: "Take over pools, blocks and addresses of another program",
		Long: "import adds the pools of the file closed, and closes those without a block that the file has addresses of: no call gets an address\n" +
			"there until pool open opens them. Until then import can be repeated, also after an interruption: the file wins over what an\n" +
			"earlier import of the same format and --host has brought, and nothing else is changed. What the file no longer has is listed, and\n" +
			"released with --prune. What cannot be taken over is reserved, named on standard error with its reason, and the status is 4.\n" +
			"Look first with --dry-run, and compare with diff before you open the pools. A file with something new for a pool that is open and\n" +
			"in use is refused with status 4, unless --into-open says that it may add to free addresses.\n\n" + formatsHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(importFormats, format) {
				return fail(exitUsage, "--format %s: the formats are %s", format, strings.Join(importFormats, ", "))
			}
			inv, err := a.readInventory(format, args[0])
			if err != nil {
				return err
			}
			var owner alloc.Owner
			if host != "" {
				if owner, err = ownerOf(host); err != nil {
					return err
				}
			}
			now := a.now() // for the whole import, so that leases and cooldowns end when they do in the source
			a.now = func() time.Time { return now }
			return a.changeRecords(cmd.Context(), making, func(ctx context.Context, db store.Store) error {
				e, err := a.engine(db)
				if err != nil {
					return err
				}
				i := a.newImport(e, inv, format, owner)
				i.intoOpen, i.prune = intoOpen, prune
				return i.print(ctx, db)
			})
		},
	}
	c.Flags().StringVar(&format, "format", "json", "the `FORMAT`: "+strings.Join(importFormats, ", "))
	c.Flags().StringVar(&host, "host", "", "the `HOST` of addresses whose source does not say it; virtual:NAME for an owner that is no machine")
	c.Flags().BoolVar(&intoOpen, "into-open", false, "add to free addresses of pools that are open")
	c.Flags().BoolVar(&prune, "prune", false, "release what an earlier import has brought and the file no longer has")
	return a.dryRunFlag(c)
}

// print carries out an import and prints what it did.
func (i *importing) print(ctx context.Context, db store.Store) error {
	stop := i.progress("importing")
	err := i.bringAll(ctx, db)
	stop()
	more := func(n int) string { return map[bool]string{true: fmt.Sprint(n)}[n > 0] }
	d := &i.done
	l := &listing{single: true, columns: []string{"POOLS", "BLOCKS", "ADDRESSES", "PREFIXES", "ATTACHMENTS", "LIMITS", "ALREADY THERE", "REPLACED", "NOT IN FILE", "PRUNED", "ENDED", "RESERVED", "DROPPED FIELDS", "CLOSED"}}
	l.add("import", d, fmt.Sprint(d.Pools), fmt.Sprint(d.Blocks), fmt.Sprint(d.Addresses), more(d.Prefixes), more(d.Attachments), more(d.Limits), fmt.Sprint(d.There), more(d.Replaced), more(d.NotInFile), more(d.Pruned),
		more(d.Ended), more(d.Reserved), droppedText(d.Dropped), strings.Join(d.Closed, ", "))
	if perr := i.app.print(l); perr != nil || err != nil {
		return errors.Join(perr, err)
	}
	for _, r := range i.refused {
		i.note("%s: %v", r.what, r.why)
	}
	if len(i.refused) > 0 {
		return fail(exitConflict, "%s refused and reserved", plural(len(i.refused), "item"))
	}
	return nil
}

func (a *app) storeCommand() *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "Back up, restore, copy, mend and measure a store"}
	c.AddCommand(a.storeStatusCommand(), a.backupCommand(), a.restoreCommand(), a.copyCommand(), a.compactCommand(), a.salvageCommand(), a.adoptCommand())
	return c
}

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Args: cobra.ExactArgs(1),
		Short: "Write a copy of the store, in one consistent view, to a new bbolt file",
		Long: "backup writes everything to a new file that restore, and every other command as bolt://FILE, reads. It works beside the\n" +
			"process that has a bbolt file.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			if exists(args[0]) {
				return fail(exitConflict, "%s exists", args[0])
			}
			db, err := a.open(ctx, reading)
			if err != nil {
				return err
			}
			defer db.Close()
			defer a.progress("writing the backup")()
			if db.bolt != nil && a.space == "" {
				err = backupBolt(ctx, db.bolt, args[0])
			} else {
				err = a.backupRecords(ctx, db, args[0])
			}
			if err != nil {
				return errors.Join(err, os.RemoveAll(args[0]))
			}
			return a.printCount(ctx, "bolt://"+args[0])
		},
	}
}

// printCount says how many records a store has.
func (a *app) printCount(ctx context.Context, name string) error {
	db, err := a.openStore(ctx, "--store", name, reading)
	if err != nil {
		return err
	}
	defer db.Close()
	recs, _, err := db.List(ctx, store.Range{})
	if err != nil {
		return err
	}
	l := &listing{single: true, columns: []string{"STORE", "RECORDS"}}
	l.add(name, map[string]any{"store": name, "records": len(recs)}, name, fmt.Sprint(len(recs)))
	return a.print(l)
}

// backupBolt copies a file with all that is in it, through a pipe into Restore, which verifies it.
func backupBolt(ctx context.Context, db *boltstore.Store, file string) error {
	r, w := io.Pipe()
	go func() {
		_, err := db.Backup(ctx, w)
		w.CloseWithError(err)
	}()
	err := boltstore.Restore(ctx, r, file)
	return errors.Join(err, r.Close())
}

// backupRecords copies the records of one view, those of a space into the same one.
func (a *app) backupRecords(ctx context.Context, db store.Store, file string) (err error) {
	recs, _, err := db.List(ctx, store.Range{})
	if err != nil {
		return err
	}
	to, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	dst, err := a.within(ctx, to, making)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(recs, 10_000) {
		ops := make([]store.Op, len(part))
		for i, r := range part {
			ops[i] = store.Op{Kind: store.Put, Key: r.Key, Value: r.Value}
		}
		if _, err := dst.Commit(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) restoreCommand() *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: "restore FILE", Args: cobra.ExactArgs(1),
		Short: "Fill an empty store from a backup",
		Long: "restore makes the file that --store names, or fills an etcd prefix that holds nothing. It never overwrites. Addresses that were\n" +
			"assigned after the backup are free again afterwards. Before engines start, find them with check --in-use, and take each one\n" +
			"that is in use and not held with assign ADDRESS --host HOST --handle HANDLE.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.store == "" {
				a.store = a.getenv("IPAMCTL_STORE")
			}
			if err := a.confirm(cmd.Context(), "restore "+storeurl.Redact(a.store)+" from "+args[0], storeurl.Redact(a.store)); err != nil {
				return err
			}
			return a.copyStore(cmd.Context(), "bolt://"+args[0], a.store)
		},
	})
}

func (a *app) copyCommand() *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: "copy STORE", Args: cobra.ExactArgs(1),
		Short: "Copy the store into another one, which must be empty",
		Long: "copy moves to another kind of store. No program may write to either one meanwhile. It may be interrupted and repeated: until it\n" +
			"is done, the other store says that it is being copied into, and engines and other commands refuse it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.store == "" {
				a.store = a.getenv("IPAMCTL_STORE")
			}
			return a.copyStore(cmd.Context(), a.store, args[0])
		},
	})
}

// copyStore copies from one store to another that is empty or holds a part of an earlier copy.
func (a *app) copyStore(ctx context.Context, from, to string) (err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	src, err := a.openStore(ctx, "--store", from, reading)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	m := making
	if a.dryRun {
		m = reading
	}
	var dst store.Store
	a.copying = true
	opened, err := a.openStore(ctx, "--store", to, m)
	a.copying = false
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, opened.Close()) }()
		if dst = opened; a.dryRun {
			dst = store.NewOverlay(opened)
		}
	case a.dryRun && statusOf(err) == exitNotFound:
		dst = store.NewMemory()
	default:
		return err
	}
	stop := a.progress("copying")
	report, err := store.Copy(ctx, dst, src)
	stop()
	if err != nil {
		return err
	}
	l := &listing{single: true, columns: []string{"STORE", "RECORDS", "WRITTEN"}}
	to = storeurl.Redact(to)
	l.add(to, map[string]any{"store": to, "records": report.Records, "written": report.Written}, to, fmt.Sprint(report.Records), fmt.Sprint(report.Written))
	if err := a.print(l); err != nil {
		return err
	}
	if a.dryRun {
		a.note("dry run: nothing was changed")
	}
	return nil
}
