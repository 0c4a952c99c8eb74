package occ

import "github.com/ipalloc/ipalloc/ipset/store"

// NotYours returns the key of the first operation that is not on a record of the caller's: those begin with an upper-case letter. The
// records of hostlocal (L) and prefixes (X) may be guarded, and not changed behind the back of these packages.
func NotYours(ops []store.Op) (key string, found bool) {
	for _, op := range ops {
		switch {
		case op.Key == "" || op.Key[0] < 'A' || op.Key[0] > 'Z':
			return op.Key, true
		case (op.Key[0] == 'L' || op.Key[0] == 'X') && op.Kind != store.Guard:
			return op.Key, true
		}
	}
	return "", false
}
