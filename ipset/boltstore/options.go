package boltstore

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ipalloc/ipalloc"
)

// Options are the options of [Open]. The zero value is right for a store that must be durable.
type Options struct {
	// Mode is the mode of a file that Open creates; 0 is 0600.
	Mode os.FileMode
	// NoCreate makes Open fail with an error that matches os.ErrNotExist instead of creating a missing file.
	NoCreate bool
	// ReadOnly opens the file for reading. Several processes can do so at once, but not while another process has it open for
	// writing. Commits fail with [ErrReadOnly].
	ReadOnly bool
	// NoSync lets the system decide when to write to the disk. Acknowledged commits then survive a crash of the process. After
	// a crash of the machine they may be lost and the file damaged. A commit costs some 40 µs instead of two syncs of the
	// disk.
	NoSync bool
	// InitialMap is the number of bytes of address space mapped for the file at first; 0 is 1 GiB. A file that outgrows the
	// mapping is mapped again when no read is in flight. A process that ends after one commit saves a tenth of a millisecond
	// with 1 MiB.
	InitialMap int
	// LockWait bounds the wait for a file that another process has. 0 does not wait; a negative value waits until the context
	// ends. Open asks every 50 ms.
	LockWait time.Duration
	// Verify says when opening reads the whole file and compares it with its checksums.
	Verify Verify
	// Boot identifies the present start of the machine, which each commit records for VerifyRestart. Empty asks the system,
	// which takes some 40 µs; a short-lived process can pass the value that it already has. At most 64 bytes.
	Boot string
	// AcceptOlder opens a file whose newer meta page is damaged, at the commit that the other meta page shows. The
	// transaction after it is lost: several acknowledged commits, if callers committed concurrently. Without
	// AcceptOlder such a file is ipalloc.ErrCorrupt, and [Salvage] saves that transaction.
	AcceptOlder bool
	// MaxSize limits the size of the file, in bytes; a commit that needs a larger file fails with [ErrNoSpace]. 0 is no limit.
	// A removal needs room as well, because bbolt writes changed pages to other places before it frees the old ones. It can
	// fail in a file without a free page.
	MaxSize int64
	// History is the number of commits kept for watches; 0 is 1,024.
	History int
	// Logger receives events for an operator: a wait for the lock, a damaged meta page, a failed write. nil logs nothing.
	Logger *slog.Logger
}

// Verify says when opening a store reads the whole file.
type Verify int

const (
	// VerifyAuto reads a file of at most 16 MiB every time, a larger one as VerifyRestart does.
	VerifyAuto Verify = iota
	// VerifyRestart reads it if the machine has restarted since the last commit, or if that is unknown. A process that dies
	// cannot damage a file; a machine that dies, or a copy to another machine, can.
	VerifyRestart
	// VerifyAlways reads it every time.
	VerifyAlways
	// VerifyNever reads only the branch pages and the list of free pages. Every value reads these, because damage there can
	// end the process or remain from an interrupted commit.
	VerifyNever
)

// verifySmall is the size up to which VerifyAuto always verifies.
const verifySmall = 16 << 20

// defaultHistory is how many commits a store remembers for its watches.
const defaultHistory = 1024

// invalid returns the error of an option.
func invalid(field string, value any) error {
	return &ipalloc.Error{Package: "boltstore", Op: "open", Field: "Options." + field, Reason: fmt.Sprintf("%v is not allowed", value), Err: ipalloc.ErrInvalid}
}

// withDefaults fills in what is zero and refuses what can't be.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Verify < VerifyAuto || o.Verify > VerifyNever:
		return o, invalid("Verify", o.Verify)
	case o.MaxSize < 0 || int64(int(o.MaxSize)) != o.MaxSize:
		return o, invalid("MaxSize", o.MaxSize)
	case o.InitialMap < 0:
		return o, invalid("InitialMap", o.InitialMap)
	case len(o.Boot) > maxBoot:
		return o, invalid("Boot", fmt.Sprintf("of %d bytes", len(o.Boot)))
	case o.History < 0:
		return o, invalid("History", o.History)
	case o.Mode&^os.ModePerm != 0:
		return o, invalid("Mode", o.Mode)
	}
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	if o.History == 0 {
		o.History = defaultHistory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// maxBoot bounds Options.Boot, whose length is one byte in the file.
const maxBoot = 64

// boot returns what identifies the present start of the machine; empty if that can't be told.
func (o *Options) boot() string {
	if o.Boot != "" {
		return o.Boot
	}
	return bootID()
}

// due reports whether a file of that size whose last commit was made in that start of the machine is to be read as a whole.
func (o *Options) due(size int64, boot string) bool {
	switch o.Verify {
	case VerifyAlways:
		return true
	case VerifyNever:
		return false
	case VerifyAuto:
		if size <= verifySmall {
			return true
		}
	}
	now := o.boot()
	return now == "" || boot != now
}
