package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// numberView is a number that is held, in JSON.
type numberView struct {
	Range  string `json:"range"`
	Number uint64 `json:"number"`
	Owner  string `json:"owner"`
}

func (a *app) numberCommand() *cobra.Command {
	c := &cobra.Command{Use: "number", Short: "Show and change what package numbers keeps: VLANs, VNIs, AS numbers",
		Long: "Each range of numbers is a space of the store, which check, sweep, copy and diff reach by its name. NAME is that of the range."}
	numbered := listing{columns: []string{"NUMBER", "OWNER"}, empty: "no number is held"}
	show := a.recordList("show NAME NUMBER|OWNER", "Show who holds a number, or the numbers of an owner", numbered, cobra.ExactArgs(2),
		func(ctx context.Context, db store.Store, l *listing, args []string) error {
			return a.addNumbers(ctx, db, l, args[0], args[1])
		})
	show.Aliases = nil
	c.AddCommand(a.recordList("list [NAME]", "List the ranges, or the numbers that are held in one", numbered, cobra.MaximumNArgs(1),
		func(ctx context.Context, db store.Store, l *listing, args []string) error {
			if len(args) == 0 {
				return a.addRanges(ctx, db, l)
			}
			return a.addNumbers(ctx, db, l, args[0], "")
		}), show, a.numberAssignCommand(), a.recordEnd("release NAME OWNER", "Release the numbers of an owner", "release the numbers of",
		listing{columns: numbered.columns, empty: "nothing was held"}, 2, func(ctx context.Context, db store.Store, l *listing, args []string) error {
			of, err := a.numbersOf(ctx, db, args[0], "")
			if err != nil {
				return err
			}
			all, err := of.Release(ctx, args[1])
			for _, n := range all {
				l.addNumber(args[0], n, args[1])
			}
			return err
		}), a.numberImportCommand())
	return c
}

func (a *app) numberOptions() ipset.Options { return ipset.Options{Now: a.now} }

func (a *app) addRanges(ctx context.Context, db store.Store, l *listing) error {
	l.columns, l.empty = []string{"RANGE", "FIRST", "LAST", "HELD"}, "there is no range of numbers"
	for name, err := range numbers.Names(ctx, db, a.numberOptions()) {
		if err != nil {
			return err
		}
		of, err := numbers.Open(ctx, db, name, a.numberOptions())
		if err != nil {
			return err
		}
		held := 0
		for _, err := range of.All(ctx) {
			if err != nil {
				return err
			}
			held++
		}
		r := of.Range()
		l.add(name, map[string]any{"range": name, "first": r.First, "last": r.Last, "held": held}, name, fmt.Sprint(r.First), fmt.Sprint(r.Last), fmt.Sprint(held))
	}
	return nil
}

func (l *listing) addNumber(name string, n uint64, owner string) {
	l.add(fmt.Sprint(n), numberView{name, n, owner}, fmt.Sprint(n), owner)
}

// addNumbers adds the numbers of a range that are held; with a word, the one of that number or those of the owner of that name.
func (a *app) addNumbers(ctx context.Context, db store.Store, l *listing, name, word string) error {
	of, err := numbers.Open(ctx, db, name, a.numberOptions())
	if err != nil {
		return err
	}
	for h, err := range of.All(ctx) {
		if err != nil {
			return err
		}
		if word == "" || word == h.Owner || word == fmt.Sprint(h.Number) {
			l.addNumber(name, h.Number, h.Owner)
		}
	}
	if word != "" && len(l.rows) == 0 {
		return fail(exitNotFound, "%q is no number of %q that is held, and no owner that holds one", word, name)
	}
	return nil
}

// rangeFlag gives a command --range, which makes a range that there is not.
func rangeFlag(c *cobra.Command, text *string) *cobra.Command {
	c.Flags().StringVar(text, "range", "", "make the range `FIRST-LAST` if there is none of that name")
	return c
}

// numbersOf opens a range, or makes it if text has its numbers.
func (a *app) numbersOf(ctx context.Context, db store.Store, name, text string) (*numbers.Numbers, error) {
	if text == "" {
		return numbers.Open(ctx, db, name, a.numberOptions())
	}
	first, last, _ := strings.Cut(text, "-")
	x, err := strconv.ParseUint(first, 10, 48)
	y, lerr := strconv.ParseUint(last, 10, 48)
	if err != nil || lerr != nil {
		return nil, fail(exitUsage, "--range %q: want two numbers, FIRST-LAST", text)
	}
	return numbers.New(ctx, db, name, numbers.Range{First: x, Last: y}, a.numberOptions())
}

func (a *app) numberAssignCommand() *cobra.Command {
	var text string
	return rangeFlag(a.dryRunFlag(&cobra.Command{
		Use: "assign NAME OWNER [NUMBER]", Args: cobra.RangeArgs(2, 3),
		Short: "Give an owner the lowest free number, or the one that is named",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeRecords(cmd.Context(), making, func(ctx context.Context, db store.Store) error {
				of, err := a.numbersOf(ctx, db, args[0], text)
				if err != nil {
					return err
				}
				var n uint64
				if len(args) == 2 {
					n, err = of.Assign(ctx, args[1])
				} else if x, perr := strconv.ParseUint(args[2], 10, 48); perr != nil {
					err = fail(exitUsage, "%q is no number", args[2])
				} else {
					n, err = x, of.Occupy(ctx, args[1], x)
				}
				if err != nil {
					return err
				}
				l := &listing{columns: []string{"NUMBER", "OWNER"}}
				l.addNumber(args[0], n, args[1])
				return a.print(l)
			})
		},
	}), &text)
}

func (a *app) numberImportCommand() *cobra.Command {
	var text string
	return rangeFlag(a.dryRunFlag(&cobra.Command{
		Use: "import NAME FILE", Args: cobra.ExactArgs(2),
		Short: "Take over numbers that another program holds",
		Long: "import reads CSV with the columns number and owner. It may be repeated: what is there stays. A number that is refused is named, and\n" +
			"the status is 4: then do not let a program assign from the range.",
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.readFile(args[1])
			if err != nil {
				return err
			}
			all, err := readNumbers(file)
			if err != nil {
				return fail(exitUsage, "%s: %v", args[1], err)
			}
			return a.changeRecords(cmd.Context(), making, func(ctx context.Context, db store.Store) error {
				of, err := a.numbersOf(ctx, db, args[0], text)
				if err != nil {
					return err
				}
				added, refused := 0, 0
				for _, h := range all {
					switch err := of.Occupy(ctx, h.Owner, h.Number); {
					case err != nil && final(err):
						return err
					case err != nil:
						refused++
						a.note("%d: %v", h.Number, err)
					default:
						added++
					}
				}
				l := &listing{single: true, columns: []string{"NUMBERS"}}
				l.add("import", map[string]int{"numbers": added, "refused": refused}, fmt.Sprint(added))
				if err := a.print(l); err != nil {
					return err
				}
				if refused > 0 {
					return fail(exitConflict, "%s refused", plural(refused, "number"))
				}
				return nil
			})
		},
	}), &text)
}

// readNumbers reads a file of numbers.
func readNumbers(text []byte) (all []numbers.Holding, err error) {
	err = readRows(text, "number,owner", func(rec []string) (string, error) {
		n, err := strconv.ParseUint(rec[0], 10, 48)
		if err != nil || rec[1] == "" {
			return "", errors.New("want a number and an owner")
		}
		all = append(all, numbers.Holding{Number: n, Owner: rec[1]})
		return fmt.Sprint(n), nil
	})
	return all, err
}

// readRows reads a file of CSV with these columns. It calls f with each line, which returns what the line is about, and refuses two lines
// about one thing.
func readRows(text []byte, columns string, f func(rec []string) (about string, err error)) error {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	head, err := r.Read()
	if err != nil || strings.ToLower(strings.Join(head, ",")) != columns {
		return errors.Join(err, fmt.Errorf("line 1: the columns %s are needed", columns))
	}
	of := map[string]int{}
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := r.FieldPos(0)
		about, err := f(rec)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if of[about] > 0 {
			return fmt.Errorf("lines %d and %d are about %s", of[about], line, about)
		}
		of[about] = line
	}
}
