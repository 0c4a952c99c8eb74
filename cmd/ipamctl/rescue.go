package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// salvageCommand saves what is readable of a damaged file.
func (a *app) salvageCommand() *cobra.Command {
	return &cobra.Command{
		Use: "salvage FILE NEWFILE", Args: cobra.ExactArgs(2),
		Short: "Write what is readable of a damaged bbolt file to a new file",
		Long: "salvage reads a bbolt file that no process has and writes every record whose checksum is right to a new file. Unless it says\n" +
			"that nothing is missing, the status is 1: addresses may be lost that are in use. Run check on the new file, with a list of\n" +
			"what is in use, before an engine gets it. Prefer a backup.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			defer a.progress("saving")()
			got, err := boltstore.Salvage(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			expected := "unknown"
			if got.Known {
				expected = fmt.Sprint(got.Expected)
			}
			l := &listing{single: true, columns: []string{"STORE", "RECORDS", "EXPECTED", "WHOLE"}}
			l.add(args[1], map[string]any{"store": "bolt://" + args[1], "records": got.Records, "expected": expected, "whole": got.Whole},
				"bolt://"+args[1], fmt.Sprint(got.Records), expected, fmt.Sprint(got.Whole))
			if err := a.print(l); err != nil || got.Whole {
				return err
			}
			return errFindings
		},
	}
}

// compactCommand replaces a file by one without free pages.
func (a *app) compactCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compact", Args: cobra.NoArgs,
		Short: "Replace a bbolt file by one without free pages",
		Long: "compact needs the file for itself. It writes a new file beside it, verifies that, and gives it the name of the old one in one\n" +
			"step. A bbolt file never shrinks by itself.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			db, err := a.open(ctx, writing)
			if err != nil {
				return err
			}
			defer db.Close()
			if db.bolt == nil {
				return fail(exitUsage, "compact is for a bbolt file; %v is none", db.location)
			}
			return a.compact(ctx, db.bolt)
		},
	}
}

// compact renames while the old file is locked: a process that waits for it then opens the new one.
func (a *app) compact(ctx context.Context, db *boltstore.Store) error {
	defer a.progress("writing the new file")()
	path := db.Path()
	before, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := db.Compact(ctx, path+".compact"); err != nil {
		return err
	}
	after, err := os.Stat(path + ".compact")
	if err == nil {
		err = os.Rename(path+".compact", path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+".compact"))
	}
	l := &listing{single: true, columns: []string{"STORE", "BYTES BEFORE", "BYTES"}}
	l.add(path, map[string]any{"store": "bolt://" + path, "before": before.Size(), "bytes": after.Size()},
		"bolt://"+path, fmt.Sprint(before.Size()), fmt.Sprint(after.Size()))
	return a.print(l)
}

// adoptCommand takes over a database or a cluster that was restored from a backup of its own.
func (a *app) adoptCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "adopt", Args: cobra.NoArgs,
		Short: "Take over a store whose database or etcd was restored by its own means",
		Long: "adopt is for a PostgreSQL, a SQLite file or an etcd after pg_restore, etcdutl snapshot restore and the like. Engines that were\n" +
			"opened before end then, because what they have cached is not valid. What was assigned after the backup is free again:\n" +
			"run check --in-use before you start engines.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			if a.store == "" {
				a.store = a.getenv("IPAMCTL_STORE")
			}
			name := storeurl.Redact(a.store)
			if err := a.confirm(ctx, "adopt "+name, name); err != nil {
				return err
			}
			a.adopting = true
			db, err := a.open(ctx, writing)
			if err != nil {
				return err
			}
			defer db.Close()
			if db.location.Kind != "etcd" && db.location.Kind != "sqlite" && db.location.Kind != "postgres" {
				return fail(exitUsage, "adopt is for an etcd, a SQLite file or a PostgreSQL; %v is none, and needs it not", db.location)
			}
			return a.printCount(ctx, a.store)
		},
	}
	c.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask for confirmation")
	return c
}

// look is read for a command that lists: one damaged record of a bbolt file does not hide the others. The status stays that of damage,
// so no program takes the answer for all there is.
func (a *app) look(ctx context.Context, f func(ctx context.Context, e *ipset.Engine) error) error {
	return a.lookStore(ctx, func(ctx context.Context, e *ipset.Engine, _ *source) error { return f(ctx, e) })
}

func (a *app) lookStore(ctx context.Context, f func(ctx context.Context, e *ipset.Engine, db *source) error) error {
	damage := a.readStore(ctx, f)
	path, file := strings.CutPrefix(a.store, "bolt://")
	if statusOf(damage) != exitDamaged || !file {
		return damage
	}
	dir, err := os.MkdirTemp("", "ipamctl")
	if err != nil {
		return damage
	}
	defer os.RemoveAll(dir)
	from, rest := dir+"/copy.db", dir+"/rest.db"
	if boltstore.Snapshot(ctx, path, from) != nil {
		from = path // whose pages are damaged, too; salvage refuses one that a process has
	}
	if _, err := boltstore.Salvage(ctx, from, rest); err != nil {
		return damage
	}
	lost, err := a.mend(ctx, rest)
	if err != nil {
		return damage
	}
	name := a.store
	a.store = "bolt://" + rest
	err = a.readStore(ctx, f)
	if a.store = name; err != nil {
		return damage
	}
	return fail(exitDamaged, "%w; the rest is shown, and what cannot be read is %s", damage, blocksText(lost))
}

// mend makes a salvaged file agree with itself, and returns what it has lost.
func (a *app) mend(ctx context.Context, file string) (lost []string, err error) {
	db, err := boltstore.Open(ctx, file, boltstore.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	e, err := a.engine(db)
	if err != nil {
		return nil, err
	}
	return lost, a.eachSpace(ctx, e, func(in *ipset.Engine) error {
		r, err := in.Operator().Check(ctx, nil)
		if err != nil {
			return err
		}
		for _, p := range r.Problems {
			if p.Kind == audit.LostAddress || p.Kind == audit.LostBlock {
				lost = append(lost, viewProblem(p).Where)
			}
		}
		_, err = in.Operator().Repair(ctx, r.Repair)
		return err
	})
}
