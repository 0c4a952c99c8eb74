package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	kuberrors "k8s.io/apimachinery/pkg/api/errors"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// The exit statuses.
const (
	exitOK          = 0
	exitFindings    = 1 // check, repair --dry-run or diff found something
	exitUsage       = 2 // an impossible flag, argument or file
	exitNotFound    = 3 // no such pool, address, handle, host, block or store
	exitConflict    = 4 // taken, exists, or changed meanwhile
	exitFull        = 5 // no address left, or a limit reached
	exitRefused     = 6 // not allowed as it is: in use, reserved, without --yes, no permission
	exitDamaged     = 7 // records that cannot be read
	exitUnavailable = 8 // the store cannot be reached, or another process has the file
	exitAborted     = 9 // stopped by a signal, or not confirmed
)

// exitText has a line on each exit status, for the help and the manual.
const exitText = `Exit status:
  0  done
  1  findings: check, repair --dry-run or diff found something
  2  usage: an impossible flag, argument or file
  3  not found: no such pool, address, handle, host, block or store
  4  conflict: taken, exists already, or changed meanwhile
  5  full: no address is left, or a limit is reached
  6  refused: in use, reserved, not confirmed with --yes, or no permission
  7  damaged: records that cannot be read
  8  unavailable: the store cannot be reached, or another process has the file
  9  aborted: stopped by a signal, or not confirmed on the terminal`

// statusError is an error with an exit status of its own. An empty text is not printed.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// fail returns an error that ends the program with status.
func fail(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

// errFindings ends the program with exitFindings and prints nothing: the findings are on standard
// output.
var errFindings = &statusError{exitFindings, errors.New("")}

// statuses maps the errors of the packages to exit statuses; the first that matches counts.
var statuses = []struct {
	err    error
	status int
}{
	{boltstore.ErrLocked, exitUnavailable},
	{boltstore.ErrReadOnly, exitRefused},
	{boltstore.ErrNoSpace, exitUnavailable},
	{ipalloc.ErrUnknownOutcome, exitConflict},
	{context.Canceled, exitAborted},
	{context.DeadlineExceeded, exitUnavailable},
	{ipalloc.ErrInvalid, exitUsage},
	{ipalloc.ErrNotFound, exitNotFound},
	{ipalloc.ErrNotHeld, exitNotFound},
	{ipalloc.ErrOutOfRange, exitNotFound},
	{ipalloc.ErrExists, exitConflict},
	{ipalloc.ErrOccupied, exitConflict},
	{ipalloc.ErrConflict, exitConflict},
	{ipalloc.ErrFull, exitFull},
	{ipalloc.ErrCooling, exitFull},
	{ipalloc.ErrLimit, exitFull},
	{ipalloc.ErrReserved, exitRefused},
	{ipalloc.ErrInUse, exitRefused},
	{ipalloc.ErrMismatch, exitRefused},
	{ipalloc.ErrVersion, exitRefused},
	{ipalloc.ErrReplaced, exitRefused},
	{ipalloc.ErrCorrupt, exitDamaged},
	{os.ErrPermission, exitRefused},
	{os.ErrExist, exitConflict},
	{os.ErrNotExist, exitNotFound},
}

// statusOf returns the exit status of an error.
func statusOf(err error) int {
	if err == nil {
		return exitOK
	}
	var s *statusError
	if errors.As(err, &s) {
		return s.status
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	if forbidden(err) {
		return exitRefused
	}
	return exitUnavailable
}

// forbidden reports whether a store says that the user may not do that.
func forbidden(err error) bool {
	var pg *pgconn.PgError
	var lite *sqlite.Error
	var etcd rpctypes.EtcdError
	switch {
	case errors.As(err, &pg):
		return pg.Code == "42501" || strings.HasPrefix(pg.Code, "28")
	case errors.As(err, &lite):
		return lite.Code()&0xff == sqlite3.SQLITE_READONLY
	case errors.As(err, &etcd):
		return etcd.Code() == codes.PermissionDenied || etcd.Code() == codes.Unauthenticated || etcd == rpctypes.ErrAuthFailed
	}
	return kuberrors.IsForbidden(err) || kuberrors.IsUnauthorized(err)
}
