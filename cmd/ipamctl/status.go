package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/cmd/internal/version"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// kindsOfRecords names the records of a space by the beginning of their keys; the longest that fits counts. Keys of other programs
// begin with other capital letters.
var kindsOfRecords = []struct{ begin, name string }{
	{"a", "addresses"}, {"b", "blocks"}, {"c", "settings and pools"}, {"mq", "request keys"}, {"ml", "sticky handles"}, {"t", "ages of request keys and sticky handles"},
	{"L", "attachments (hostlocal)"}, {"X", "prefixes"}, {"Q", "limits"}, {"", "indexes"},
}

// statusView is a store in JSON.
type statusView struct {
	Store    string       `json:"store"`
	Version  string       `json:"version"` // of ipamctl
	Service  string       `json:"service,omitempty"`
	Revision uint64       `json:"revision"`
	Records  int          `json:"records"`
	Bytes    int          `json:"bytes"` // of keys and values
	File     int64        `json:"fileBytes,omitempty"`
	Free     int64        `json:"freeBytes,omitempty"` // pages of the file that the next commits use
	Fill     []fillOfKind `json:"kinds"`
}

// fillOfKind is how much of a store the records of a kind in a space are.
type fillOfKind struct {
	Space   string `json:"space"`
	Kind    string `json:"kind"`
	Records int    `json:"records"`
	Bytes   int    `json:"bytes"`
}

func (a *app) storeStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Args: cobra.NoArgs,
		Short: "Show how large the store is, what fills it and which process has it",
		Long: "status counts the records of the store, or with --space of a space, and the bytes of their keys and values, by kind. Of a bbolt\n" +
			"file it also prints the size, its free pages, and the process that has it. It reads every record.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.readStore(cmd.Context(), func(ctx context.Context, _ *ipset.Engine, db *source) error { return a.printStatus(ctx, db) })
		},
	}
}

func (a *app) printStatus(ctx context.Context, db *source) error {
	v := statusView{Store: storeurl.Redact(a.store)}
	v.Version, _ = version.Of()
	if db.bolt != nil {
		is := db.bolt.Stats()
		v.File, v.Free, v.Service = is.Bytes, is.Free, holderOfFile(ctx, db.location.Path)
	}
	fill := map[[2]string]*fillOfKind{}
	r := store.Range{Limit: 10_000}
	for {
		recs, rev, err := db.List(ctx, r)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			space, key := a.space, rec.Key
			if name, rest, ok := strings.Cut(strings.TrimPrefix(key, "x"), "\x00"); ok && strings.HasPrefix(key, "x") {
				space, key = name, rest
			}
			of := [2]string{space, kindOfRecord(key)}
			if fill[of] == nil {
				fill[of] = &fillOfKind{Space: spaceText(space), Kind: of[1]}
			}
			n := len(rec.Key) + len(rec.Value)
			fill[of].Records, fill[of].Bytes = fill[of].Records+1, fill[of].Bytes+n
			v.Records, v.Bytes = v.Records+1, v.Bytes+n
		}
		v.Revision = rev
		if len(recs) < r.Limit {
			break
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
	detail := &listing{columns: []string{"SPACE", "KIND", "RECORDS", "BYTES"}}
	for _, f := range slices.SortedFunc(maps.Values(fill), func(x, y *fillOfKind) int {
		return cmp.Or(y.Bytes-x.Bytes, strings.Compare(x.Space+"\x00"+x.Kind, y.Space+"\x00"+y.Kind))
	}) {
		v.Fill = append(v.Fill, *f)
		detail.add(f.Kind, f, f.Space, f.Kind, fmt.Sprint(f.Records), fmt.Sprint(f.Bytes))
	}
	size := func(n int64) string { return map[bool]string{true: fmt.Sprint(n)}[v.File > 0] }
	l := &listing{single: true, detail: detail, columns: []string{"STORE", "IPAMCTL", "PROCESS", "REVISION", "RECORDS", "BYTES", "FILE BYTES", "FREE BYTES"}}
	l.add(v.Store, v, v.Store, v.Version, v.Service, fmt.Sprint(v.Revision), fmt.Sprint(v.Records), fmt.Sprint(v.Bytes), size(v.File), size(v.Free))
	return a.print(l)
}

// kindOfRecord names the kind of a record.
func kindOfRecord(key string) string {
	for _, k := range kindsOfRecords {
		if strings.HasPrefix(key, k.begin) && (k.begin != "" || key[0] < 'A' || key[0] > 'Z') {
			return k.name
		}
	}
	return "records of other programs"
}

// holderOfFile says which process has a bbolt file open. It opens the file for a moment to find out, as a reader beside which other readers can be.
func holderOfFile(ctx context.Context, path string) string {
	db, err := boltstore.Open(ctx, path, boltstore.Options{ReadOnly: true})
	switch {
	case err == nil:
		_ = db.Close()
		return "none"
	case errors.Is(err, boltstore.ErrLocked):
		return err.Error()
	}
	return "unknown"
}
