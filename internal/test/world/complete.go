package world

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// Missing returns the features that the world lacks. These are kinds of records listed in README.md of package store,
// and fields of arguments and results that nothing in the world has set. The argument readme is the path of that file.
func (w *World) Missing(tb testing.TB, readme string) (missing []string) {
	tb.Helper()
	kinds, err := documented(readme)
	if err != nil || len(kinds) < 10 {
		tb.Fatalf("%s lists the kinds %q: %v", readme, kinds, err)
	}
	seen := map[string]bool{}
	for _, space := range Spaces {
		in, _ := In(w.DB, space)
		recs, _, err := in.List(context.Background(), store.Range{})
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range recs {
			kind := regexp.MustCompile(`^(m[ql]|cp|.)`).FindString(r.Key)
			seen[kind] = true
			if kind[0] >= 'a' && kind[0] <= 'z' && !slices.Contains(kinds, kind) {
				missing = append(missing, fmt.Sprintf("the documentation of the record %q", r.Key))
			}
		}
	}
	for _, k := range kinds {
		if !seen[k] {
			missing = append(missing, "a record of kind "+k)
		}
	}
	return append(missing, w.unset()...)
}

// documented returns the kinds of records that a page lists: indented lines that begin with a key.
func documented(readme string) (kinds []string, err error) {
	text, err := os.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^    ([a-z]+)(?:<|   )`).FindAllStringSubmatch(string(text), -1) {
		kinds = append(kinds, m[1])
	}
	return kinds, nil
}

// unset returns the exported fields of the types below that have their zero value in all that made the world and in all
// that its engines show.
func (w *World) unset() (missing []string) {
	set := map[string]bool{}
	for _, v := range w.used {
		note(reflect.ValueOf(v), set)
	}
	for _, v := range []any{
		alloc.Pool{}, alloc.Config{}, alloc.AssignArgs{}, alloc.AssignIPArgs{}, alloc.Share{}, alloc.BlockArgs{}, selector.Requirement{}, selector.Term{},
		alloc.DeclineArgs{}, alloc.UpdateArgs{}, alloc.RenewArgs{}, alloc.TransferArgs{}, alloc.RenameArgs{}, alloc.Allocation{}, alloc.BlockLimit{},
		prefixes.Pool{}, prefixes.Request{}, prefixes.RenewArgs{}, prefixes.Holding{}, hostlocal.Range{}, hostlocal.Config{}, hostlocal.Holding{},
		numbers.Range{}, numbers.Holding{},
	} {
		t := reflect.TypeOf(v)
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && !set[t.String()+"."+f.Name] && !isExcused(t, f.Name) {
				missing = append(missing, "a value of "+t.String()+"."+f.Name)
			}
		}
	}
	return missing
}

// isExcused reports whether a field leaves no trace in a state, so a world cannot have it.
func isExcused(t reflect.Type, field string) bool {
	return slices.Contains([]string{
		"hostlocal.Config.Attempts", "hostlocal.Config.Wait", "hostlocal.Config.Now", // how often a call is tried, and its clock
		"alloc.UpdateArgs.IfActive", "alloc.UpdateArgs.IfAlternate", "alloc.UpdateArgs.Swap", // conditions, and an exchange
		"alloc.BlockLimit.Pool", "alloc.BlockLimit.Blocks", "alloc.BlockLimit.Max", // computed from what is asked otherwise
		"alloc.Pool.Draining", // written by the engine; Pools shows it
	}, t.String()+"."+field)
}

// note notes the exported fields in v that are not zero, as "type.field".
func note(v reflect.Value, set map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			note(v.Elem(), set)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			note(v.Index(i), set)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if !v.Field(i).IsZero() {
					set[v.Type().String()+"."+f.Name] = true
				}
				note(v.Field(i), set)
			}
		}
	}
}
