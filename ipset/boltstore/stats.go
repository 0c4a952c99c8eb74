package boltstore

import (
	"context"
	"time"

	"go.etcd.io/bbolt"
)

// Stats are statistics of a store at one moment.
type Stats struct {
	// Revision is the revision of the last commit.
	Revision uint64
	// Records is the number of records.
	Records uint64
	// Bytes is the size of the used part of the file. Free is the size of its free pages, which the next commits reuse.
	Bytes, Free int64
	// Transactions is the number of transactions in the file's life; concurrent commits share one. Each costs two syncs of
	// the disk.
	Transactions uint64
	// WriteTime is the time spent writing and syncing transactions since the file was opened.
	WriteTime time.Duration
}

// Stats returns the statistics of the store. After Close they are zero.
func (s *Store) Stats() Stats {
	var st Stats
	_ = s.view(context.Background(), "stats", func(tx *bbolt.Tx) error {
		st.Bytes, st.Transactions = tx.Size(), uint64(tx.ID())
		pages := s.db.Stats()
		st.WriteTime = pages.TxStats.GetWriteTime()
		st.Free = int64(pages.FreePageN+pages.PendingPageN) * s.page
		return nil
	})
	if st.Transactions == 0 {
		return Stats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Revision, st.Records = s.state.rev, s.state.count
	return st
}
