package selector

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// Reasons to refuse a requirement. A term of the original without requirements selects
// nothing, which is always a mistake: to select everything, use no term at all.
var (
	errEmptyTerm = errors.New("a term without requirements")
	errOperator  = errors.New("unknown operator")
	errKey       = errors.New("bad key")
	errValue     = errors.New("bad value")
	errValues    = errors.New("wrong number of values")
)

// wrong returns the error for a requirement of a term, or for the term if index is below 0.
func wrong(list string, term, index int, err error) error {
	place := "[" + strconv.Itoa(term) + "]" + list
	if index >= 0 {
		place += "[" + strconv.Itoa(index) + "]"
	}
	return &ipalloc.Error{Package: "selector", Op: "compile", Field: place, Reason: err.Error(), Err: ipalloc.ErrInvalid}
}

const (
	longestName   = 63  // of a key without its prefix, and of a value
	longestPrefix = 253 // of the prefix of a key, and of the name of a thing
)

// check returns the reason to refuse r, or nil.
func check(r Requirement, field bool) error {
	if field && r.Key != NameField {
		return fmt.Errorf("%w: %q: the only field is %s", errKey, r.Key, NameField)
	}
	if !field && !isKey(r.Key) {
		return fmt.Errorf("%w: %q cannot be the key of a label", errKey, r.Key)
	}
	switch r.Op {
	case In, NotIn:
		if len(r.Values) == 0 {
			return fmt.Errorf("%w: %s %s needs at least one", errValues, r.Key, r.Op)
		}
		for _, v := range r.Values {
			if field && !isName(v) {
				return fmt.Errorf("%w: %s %s: %q cannot be a name", errValue, r.Key, r.Op, v)
			}
			if !field && !isValue(v) {
				return fmt.Errorf("%w: %s %s: %q cannot be the value of a label", errValue, r.Key, r.Op, v)
			}
		}
		return nil
	case Exists, DoesNotExist, Gt, Lt:
		if field {
			return fmt.Errorf("%w: %q for %s, which takes %s and %s", errOperator, r.Op, NameField, In, NotIn)
		}
	default:
		return fmt.Errorf("%w: %q for %s", errOperator, r.Op, r.Key)
	}
	want := 0
	if r.Op == Gt || r.Op == Lt {
		want = 1
	}
	if len(r.Values) != want {
		return fmt.Errorf("%w: %s %s takes %d, not %d", errValues, r.Key, r.Op, want, len(r.Values))
	}
	if want == 1 {
		if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			return fmt.Errorf("%w: %s %s: %q is no 64-bit integer", errValue, r.Key, r.Op, r.Values[0])
		}
	}
	return nil
}

// isKey reports whether s can be the key of a label: an optional DNS domain and a slash,
// and then a name. A name has at most 63 letters, digits, '-', '_' and '.', and starts
// and ends with a letter or digit.
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

// isValue reports whether s can be the value of a label; it may be empty.
func isValue(s string) bool { return s == "" || len(s) <= longestName && isWord(s) }

// isName reports whether s can be the name of an object.
func isName(s string) bool { return s != "" && len(s) <= longestPrefix && isWord(s) }

// isWord reports whether s consists of letters, digits, '-', '_' and '.', and starts and
// ends with a letter or digit.
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
