package selector

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The sentinels of this package, for errors.Is.
var (
	// ErrEmptyTerm: a term without a requirement. The original lets it select
	// nothing, which nobody means: no term at all selects everything.
	ErrEmptyTerm = errors.New("a term without requirements")
	// ErrOperator: not one of the operators, or not one that a field can have.
	ErrOperator = errors.New("unknown operator")
	// ErrKey: no label can have such a key, or there is no such field.
	ErrKey = errors.New("bad key")
	// ErrValue: no label can have such a value, or it is no integer.
	ErrValue = errors.New("bad value")
	// ErrValues: fewer or more values than the operator takes.
	ErrValues = errors.New("wrong number of values")
)

// Error says which requirement is wrong and why.
type Error struct {
	Term        int         // position of the term
	Index       int         // position among the term's labels or fields; -1 if it is about the term
	Field       bool        // it is a requirement on a field
	Requirement Requirement // the requirement, if it is about one
	Err         error       // one of the sentinels, or wraps one
}

// Path returns the place of what is wrong: "[0].Labels[2]".
func (e *Error) Path() string {
	s := "[" + strconv.Itoa(e.Term) + "]"
	if e.Index < 0 {
		return s
	}
	if e.Field {
		return s + ".Fields[" + strconv.Itoa(e.Index) + "]"
	}
	return s + ".Labels[" + strconv.Itoa(e.Index) + "]"
}

// Error returns "selector: [0].Labels[2]: reason".
func (e *Error) Error() string { return "selector: " + e.Path() + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

const (
	longestName   = 63  // of a key without its prefix, and of a value
	longestPrefix = 253 // of the prefix of a key, and of the name of a thing
)

// check returns what is wrong with r.
func check(r Requirement, field bool) error {
	if field && r.Key != NameField {
		return fmt.Errorf("%w: %q: the only field is %s", ErrKey, r.Key, NameField)
	}
	if !field && !isKey(r.Key) {
		return fmt.Errorf("%w: %q cannot be the key of a label", ErrKey, r.Key)
	}
	switch r.Op {
	case In, NotIn:
		if len(r.Values) == 0 {
			return fmt.Errorf("%w: %s %s needs at least one", ErrValues, r.Key, r.Op)
		}
		for _, v := range r.Values {
			if field && !isName(v) {
				return fmt.Errorf("%w: %s %s: %q cannot be a name", ErrValue, r.Key, r.Op, v)
			}
			if !field && !isValue(v) {
				return fmt.Errorf("%w: %s %s: %q cannot be the value of a label", ErrValue, r.Key, r.Op, v)
			}
		}
		return nil
	case Exists, DoesNotExist, Gt, Lt:
		if field {
			return fmt.Errorf("%w: %q for %s, which takes %s and %s", ErrOperator, r.Op, NameField, In, NotIn)
		}
	default:
		return fmt.Errorf("%w: %q for %s", ErrOperator, r.Op, r.Key)
	}
	want := 0
	if r.Op == Gt || r.Op == Lt {
		want = 1
	}
	if len(r.Values) != want {
		return fmt.Errorf("%w: %s %s takes %d, not %d", ErrValues, r.Key, r.Op, want, len(r.Values))
	}
	if want == 1 {
		if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			return fmt.Errorf("%w: %s %s: %q is no 64-bit integer", ErrValue, r.Key, r.Op, r.Values[0])
		}
	}
	return nil
}

// isKey reports whether a label can have that key: a name of at most 63 letters,
// digits, '-', '_' and '.', which starts and ends with a letter or digit, after an
// optional DNS domain and a slash.
func isKey(s string) bool {
	prefix, name, ok := strings.Cut(s, "/")
	if !ok {
		return s != "" && isValue(s)
	}
	if prefix == "" || len(prefix) > longestPrefix || name == "" {
		return false
	}
	for _, part := range strings.Split(prefix, ".") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
	}
	return isValue(name)
}

// isValue reports whether a label can have that value; it may be empty.
func isValue(s string) bool { return s == "" || len(s) <= longestName && isWord(s) }

// isName reports whether a thing can have that name.
func isName(s string) bool { return s != "" && len(s) <= longestPrefix && isWord(s) }

// isWord reports whether s is of letters, digits, '-', '_' and '.', the first and
// last of them a letter or digit.
func isWord(s string) bool {
	alnum := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	for i := range len(s) {
		if !alnum(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return alnum(s[0]) && alnum(s[len(s)-1])
}
