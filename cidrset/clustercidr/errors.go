package clustercidr

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// The sentinels that this package shares with package nodeipam, for errors.Is.
var (
	// ErrFull: entries match the node, and none of them has room in all families.
	ErrFull = errors.New("no free space")
	// ErrOutOfRange: the prefix is not in the entry's pool, or in no entry's.
	ErrOutOfRange = errors.New("not in the pool")
	// ErrBadPool: the pool is invalid, unmasked, 4-in-6 or of the other family.
	ErrBadPool = errors.New("bad pool")
	// ErrBadPrefix: the prefix is invalid, unmasked or 4-in-6, or its text is no
	// prefix at all.
	ErrBadPrefix = errors.New("bad prefix")
	// ErrBadBits: the size of a node is missing, impossible, or two things at once.
	ErrBadBits = errors.New("bad prefix length")
	// ErrBadOption: an option that cannot be, or that contradicts another.
	ErrBadOption = errors.New("bad option")
	// ErrSnapshot: the bytes given to [Restore] are damaged or not a snapshot.
	ErrSnapshot = errors.New("bad snapshot")
)

// The sentinels of this package, for errors.Is.
var (
	// ErrNoMatch: no entry matches the node. Wait for [Error.Changed].
	ErrNoMatch = errors.New("no entry matches")
	// ErrNoEntry: there is no entry of that name.
	ErrNoEntry = errors.New("no such entry")
	// ErrExists: another entry of that name is there; entries never change.
	ErrExists = errors.New("exists and cannot be changed")
	// ErrTerminating: the entry was deleted and waits for its last node to go.
	ErrTerminating = errors.New("is terminating")
	// ErrBadName: the name is empty.
	ErrBadName = errors.New("empty name")
	// ErrBadSelector: a selector that cannot be meant.
	ErrBadSelector = errors.New("bad selector")
	// ErrFamily: the entry lacks an address family, or there is no such family.
	ErrFamily = errors.New("lacks the address family")
	// ErrMisaligned: the prefix is in the pool but not of the size of a child.
	ErrMisaligned = errors.New("not of the size of a child")
	// ErrTooMany: a second prefix of one family.
	ErrTooMany = errors.New("more than one prefix of a family")
	// ErrMissing: the node has no prefix of a family that every node needs.
	ErrMissing = errors.New("has no prefix of a family that every node needs")
	// ErrAmbiguous: no entry is recorded and several fit.
	ErrAmbiguous = errors.New("no entry is recorded and several fit")
	// ErrDuplicate: another node holds the prefix or one that overlaps it.
	ErrDuplicate = errors.New("held by another node")
	// ErrReserved: the prefix overlaps a reservation.
	ErrReserved = errors.New("overlaps a reservation")
	// ErrBadChange: a change of no known kind.
	ErrBadChange = errors.New("unknown kind of change")
	// ErrListedTwice: a list of nodes has two with the same name.
	ErrListedTwice = errors.New("listed twice")
)

// Error says which operation failed, for whom and on what. Its text names all of
// that; its Err is one of the sentinels, or wraps one. The problems that
// [Allocator.Load] finds are of this type too.
type Error struct {
	Op     string       // the method, in lower case: "add", "allocate", "load", "restore"
	Node   string       // the node it is about, if any
	Entry  string       // the entry it is about, if any
	Field  string       // with "add" and "new": the field that is wrong, as "Selector[0].Labels[1]"
	Prefix netip.Prefix // the prefix, if it is about one that could be read
	Text   string       // with ErrBadPrefix: what could not be read
	Other  string       // with ErrDuplicate and ErrAmbiguous: another node or entry
	Tried  []string     // with ErrFull: the entries that match, best first
	Err    error

	// Changed, with ErrNoMatch and ErrFull, is closed as soon as asking again may
	// have another answer: when an entry is added, and with ErrFull also when a
	// prefix becomes free. It is nil with any other error.
	Changed <-chan struct{}
}

// Error returns "clustercidr: op node of entry field prefix: reason: other".
func (e *Error) Error() string {
	s := "clustercidr: " + e.Op
	if e.Node != "" {
		s += " " + e.Node
	}
	if e.Entry != "" {
		if e.Node != "" {
			s += " of"
		}
		s += " " + e.Entry
	}
	if e.Field != "" {
		s += " " + e.Field
	}
	if e.Prefix.IsValid() {
		s += " " + e.Prefix.String()
	} else if e.Text != "" {
		s += " " + strconv.Quote(e.Text)
	}
	s += ": " + e.Err.Error()
	if e.Other != "" {
		s += ": " + e.Other
	}
	if len(e.Tried) > 0 {
		s += ": tried " + strings.Join(e.Tried, ", ")
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
