package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	fileBytes        = define("file_bytes", gauge, "Size of the file: used, and free pages that the next commits use.", "state")
	fileLimit        = define("file_limit_bytes", gauge, "Size that the file may have; absent without a limit.")
	fileRecords      = define("file_records", gauge, "Records in the file.")
	fileTransactions = define("file_transactions_total", counter, "Transactions of the file; commits that arrive together share one.")
	fileWriteSeconds = define("file_write_seconds_total", counter, "Time spent writing and syncing transactions since the file was opened.")

	backupLast    = define("backup_last_success_timestamp_seconds", gauge, "When the last successful backup was taken; 0 before the first.")
	backupBytes   = define("backup_last_bytes", gauge, "Its size.")
	backupSeconds = define("backup_last_seconds", gauge, "How long it took.")
	backups       = define("backups_total", counter, "Backups: made or failed.", "outcome")
)

// FileStats are statistics of a store in a file. A boltstore.Stats converts to it.
type FileStats struct {
	Revision     uint64
	Records      uint64
	Bytes, Free  int64
	Transactions uint64
	WriteTime    time.Duration
}

type file struct {
	series
	stats func() FileStats
	limit int64
}

// NewFile returns a collector of the statistics of a file. The limit is its largest allowed size, such as MaxSize of the
// store's options or the room on the disk; 0 is no limit.
//
//	metrics.NewFile("pods", func() metrics.FileStats { return metrics.FileStats(db.Stats()) }, 1<<30)
func NewFile(name string, stats func() FileStats, limit int64) prometheus.Collector {
	return &file{newSeries(name, "", fileBytes, fileLimit, fileRecords, fileTransactions, fileWriteSeconds), stats, limit}
}

// Collect implements [prometheus.Collector].
func (f *file) Collect(out chan<- prometheus.Metric) {
	st := f.stats()
	f.send(out, fileBytes, float64(st.Bytes-st.Free), "used")
	f.send(out, fileBytes, float64(st.Free), "free")
	if f.limit > 0 {
		f.send(out, fileLimit, float64(f.limit))
	}
	f.send(out, fileRecords, float64(st.Records))
	f.send(out, fileTransactions, float64(st.Transactions))
	f.send(out, fileWriteSeconds, st.WriteTime.Seconds())
}

// Backups is a collector of the age of backups. [NewBackups] returns one.
type Backups struct {
	series
	mu   sync.Mutex
	last struct {
		at   time.Time
		took time.Duration
		size int64
	}
	made, failed float64
}

// NewBackups returns a collector of the age of backups. After a restart, pass the time of the last backup to Resume.
func NewBackups(name string) *Backups {
	return &Backups{series: newSeries(name, "", backupLast, backupBytes, backupSeconds, backups)}
}

// Resume sets when the last successful backup was taken and its size, such as the time and size of its file. It does not count
// as a backup.
func (b *Backups) Resume(at time.Time, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last.at, b.last.took, b.last.size = at, 0, size
}

// Observe counts a backup that began at began, lasted took, and has size bytes or failed with err.
func (b *Backups) Observe(began time.Time, took time.Duration, size int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.failed++
		return
	}
	b.made++
	b.last.at, b.last.took, b.last.size = began, took, size
}

// Collect implements [prometheus.Collector].
func (b *Backups) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	last, made, failed := b.last, b.made, b.failed
	b.mu.Unlock()
	b.send(out, backupLast, stamp(last.at))
	b.send(out, backupBytes, float64(last.size))
	b.send(out, backupSeconds, last.took.Seconds())
	b.send(out, backups, made, "made")
	b.send(out, backups, failed, "failed")
}
