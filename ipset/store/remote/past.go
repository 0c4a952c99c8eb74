package remote

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// How a client notices that the store behind a socket was set back. Each start of a service has a random number. A record of the store
// lists the starts, each with the revision at which it found the store. What a client saw during one start is in the past of the store
// if and only if its revision is not above that of the next start in the list. A client whose start is not in the list saw another store.

// A start is one start of a service.
type start struct {
	ID  uint64 // odd; even if the store was read-only, so that the list does not have it
	Rev uint64 // of the store when the service started
}

// mostStarts bounds the list. A client that makes no call during so many starts cannot show its past, and ends.
const mostStarts = 4096

// starts are the starts of a service, in order; the last one is the present one.
type starts []start

func (s starts) now() uint64 { return s[len(s)-1].ID }

// lack returns the error of a client that saw a revision during a start, if the store does not have it.
func (s starts) lack(during, rev uint64) error {
	at := slices.IndexFunc(s, func(x start) bool { return x.ID == during })
	switch {
	case rev == 0, at == len(s)-1, at < 0 && during%2 == 0 && rev <= s[len(s)-1].Rev, at >= 0 && rev <= s[at+1].Rev:
		return nil
	case at < 0 && during%2 != 0:
		return fmt.Errorf("%w: the service has another store", ipalloc.ErrReplaced)
	}
	return fmt.Errorf("%w: the store of the service was set back: it does not have commit %d", ipalloc.ErrReplaced, rev)
}

// record is the record that has the list.
type record string

// hide removes the record from those that a client sees.
func (k record) hide(recs []store.Record) []store.Record {
	return slices.DeleteFunc(recs, func(r store.Record) bool { return r.Key == string(k) })
}

// begin notes a start of the service at a path.
func begin(ctx context.Context, path string, db store.Store) (record, starts, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	op := store.Op{Kind: store.Put, Key: "Remote" + path}
	wait := occ.Backoff(occ.Retry{})
	for attempt := 0; ; attempt++ {
		if err := wait(ctx, attempt); err != nil {
			return "", nil, err
		}
		recs, rev, err := db.List(ctx, store.Range{From: op.Key, To: op.Key + "\x00"})
		if err != nil {
			return "", nil, err
		}
		var all starts
		if op.Expect = 0; len(recs) > 0 {
			op.Expect, all = recs[0].Rev, make(starts, len(recs[0].Value)/16)
			if _, err := binary.Decode([]byte(recs[0].Value), binary.BigEndian, all); err != nil {
				return "", nil, err
			}
		}
		var id [8]byte
		_, _ = rand.Read(id[:]) // does not fail
		all = append(all[max(0, len(all)-mostStarts+1):], start{binary.BigEndian.Uint64(id[:]) | 1, rev})
		value, err := binary.Append(nil, binary.BigEndian, all)
		if err != nil {
			return "", nil, err
		}
		op.Value = string(value)
		_, err = db.Commit(ctx, []store.Op{op})
		switch {
		case err == nil:
			return record(op.Key), all, nil
		case errors.Is(err, store.ErrReadOnly):
			all[len(all)-1].ID &^= 1
			return record(op.Key), all, nil
		case !errors.Is(err, ipalloc.ErrConflict) && !errors.Is(err, ipalloc.ErrUnknownOutcome):
			return "", nil, err
		}
	}
}
