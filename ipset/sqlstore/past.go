package sqlstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
)

// A revision is the number of a commit, and below it some random bits. Two pasts of one database, as before and after the
// promotion of a replica that lacked the last commits, or on both sides of a savepoint that was rolled back, thereby have no
// revision in common: one that a process has seen is in the past of the database, or the process saw another past. The chance
// that a lost commit goes unnoticed is 1 in 16 million; the number has room for 500 billion commits.
const (
	pastBits = 24
	oneStep  = 1 << pastBits
)

// stepAfter returns the revision of the commit that follows rev.
func stepAfter(rev, salt uint64) uint64 { return (rev>>pastBits+1)<<pastBits + salt }

// salts returns the random bits of n commits. They come from the system, because a generator in the process would repeat itself
// if the machine is set back to a snapshot.
func salts(n int) []int64 {
	raw := make([]byte, 4*n)
	_, _ = rand.Read(raw) // does not fail
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(binary.NativeEndian.Uint32(raw[4*i:]) % oneStep)
	}
	return list
}

// seen verifies the revision of an answer: it is not below since, the highest one seen before the question was asked.
func (s *Store) seen(rev, since uint64) error {
	if rev < since {
		return s.lose(fmt.Errorf("%w: the database is at revision %d after %d", ipalloc.ErrReplaced, rev, since))
	}
	for have := s.high.Load(); rev > have && !s.high.CompareAndSwap(have, rev); have = s.high.Load() {
	}
	return nil
}

// lose has every later call fail with err: what engines have cached is of another past, also when this one has grown.
func (s *Store) lose(err error) error {
	s.lost.CompareAndSwap(nil, &err)
	return err
}

// usable returns the error of a store that has lost its past, or whose file is another one.
func (s *Store) usable() error {
	if err := s.lost.Load(); err != nil {
		return *err
	}
	return s.sameFile()
}

// gone finds out why a statement has found no store that has since in its past.
func (s *Store) gone(ctx context.Context, q querier, since uint64) error {
	if err := s.d.behind(ctx, q); err != nil {
		return err
	}
	m, ok, err := s.readMeta(ctx, q)
	if err != nil {
		return err
	}
	if !ok || m.id != s.id {
		return fmt.Errorf("%w: store %s is not in the database", ipalloc.ErrReplaced, s.id)
	}
	var records int
	if err := q.QueryRowContext(ctx, s.q.name(`SELECT count(*) FROM ipalloc_records WHERE key = EMPTY`)).Scan(&records); err != nil {
		return err
	}
	if records == 0 {
		return fmt.Errorf("%w: its records were removed", ipalloc.ErrReplaced)
	}
	var others int
	next := s.q.name(`SELECT count(*) FROM ipalloc_changes WHERE rev >= $1 AND rev < $2 AND rev <> $3`)
	if err := q.QueryRowContext(ctx, next, int64(since>>pastBits<<pastBits), int64(stepAfter(since, 0)), int64(since)).Scan(&others); err != nil {
		return err
	}
	if m.rev>>pastBits > since>>pastBits && others == 0 { // rows were deleted, which proves nothing
		s.high.CompareAndSwap(since, 0)
		return errForgotten
	}
	return s.lose(fmt.Errorf("%w: the database is at revision %d, and revision %d, which was seen, is not in its past", ipalloc.ErrReplaced, m.rev, since))
}

// errForgotten means that the database has neither the changes of a commit that this process saw nor those of another one of the same
// number. The call is repeated, without the comparison.
var errForgotten = errors.New("sqlstore: the changes of a commit that was seen are gone")
