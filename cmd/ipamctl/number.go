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
	c.AddCommand(&cobra.Command{
		Use: "list [NAME]", Aliases: []string{"ls"}, Args: cobra.MaximumNArgs(1),
		Short: "List the ranges, or the numbers that are held in one",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readStore(cmd.Context(), func(ctx context.Context, _ *ipset.Engine, db *source) error {
				if len(args) == 0 {
					return a.printRanges(ctx, db)
				}
				return a.printNumbers(ctx, db, args[0], "")
			})
		},
	}, &cobra.Command{
		Use: "show NAME NUMBER|OWNER", Args: cobra.ExactArgs(2), Short: "Show who holds a number, or the numbers of an owner",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readStore(cmd.Context(), func(ctx context.Context, _ *ipset.Engine, db *source) error {
				return a.printNumbers(ctx, db, args[0], args[1])
			})
		},
	}, a.numberAssignCommand(), a.numberReleaseCommand(), a.numberImportCommand())
	return c
}

func (a *app) numberOptions() ipset.Options { return ipset.Options{Now: a.now} }

func (a *app) printRanges(ctx context.Context, db store.Store) error {
	l := &listing{columns: []string{"RANGE", "FIRST", "LAST", "HELD"}, empty: "there is no range of numbers"}
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
	return a.print(l)
}

func newNumbers() *listing {
	return &listing{columns: []string{"NUMBER", "OWNER"}, empty: "no number is held"}
}

func (l *listing) addNumber(name string, n uint64, owner string) {
	l.add(fmt.Sprint(n), numberView{name, n, owner}, fmt.Sprint(n), owner)
}

// printNumbers prints the numbers of a range that are held; with a word, the one of that number or those of the owner of that name.
func (a *app) printNumbers(ctx context.Context, db store.Store, name, word string) error {
	of, err := numbers.Open(ctx, db, name, a.numberOptions())
	if err != nil {
		return err
	}
	l := newNumbers()
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
	return a.print(l)
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
				l := newNumbers()
				l.addNumber(args[0], n, args[1])
				return a.print(l)
			})
		},
	}), &text)
}

func (a *app) numberReleaseCommand() *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: "release NAME OWNER", Args: cobra.ExactArgs(2), Short: "Release the numbers of an owner",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), "release the numbers of "+args[1], args[1]); err != nil {
				return err
			}
			return a.changeRecords(cmd.Context(), writing, func(ctx context.Context, db store.Store) error {
				of, err := a.numbersOf(ctx, db, args[0], "")
				if err != nil {
					return err
				}
				all, err := of.Release(ctx, args[1])
				l := newNumbers()
				l.empty = "nothing was held"
				for _, n := range all {
					l.addNumber(args[0], n, args[1])
				}
				return a.printThen(l, err)
			})
		},
	})
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
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	head, err := r.Read()
	if err != nil || strings.ToLower(strings.Join(head, ",")) != "number,owner" {
		return nil, errors.Join(err, errors.New("line 1: the columns number,owner are needed"))
	}
	of := map[uint64]int{}
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		n, err := strconv.ParseUint(rec[0], 10, 48)
		switch {
		case err != nil || rec[1] == "":
			return nil, fmt.Errorf("line %d: want a number and an owner", line)
		case of[n] > 0:
			return nil, fmt.Errorf("lines %d and %d are about %d", of[n], line, n)
		}
		of[n] = line
		all = append(all, numbers.Holding{Number: n, Owner: rec[1]})
	}
}
