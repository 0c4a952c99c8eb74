package boltstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// isTable reports whether a bucket holds records.
func isTable(name string) bool {
	return name == recordsBucket || strings.HasPrefix(name, tablePrefix) && len(name) > len(tablePrefix)
}

// roots returns the state of a file and the buckets in its root, having looked at nothing else.
func (im *image) roots() (st state, tables []entry, err error) {
	known := false
	var other string
	err = im.walk(im.meta.root, nil, nil, 0, func(e entry) error {
		switch name := string(e.key); {
		case name == stateBucket:
			known = true
			return im.bucket(e, func(r entry) error {
				if string(r.key) != stateKey {
					return im.damaged(int64(r.page), fmt.Sprintf("record %q in %s", r.key, stateBucket))
				}
				switch st, err = parseState(r.value); {
				case errors.Is(err, ipalloc.ErrVersion):
					return newer(im.path, err.Error())
				case err != nil:
					return im.damaged(int64(r.page), err.Error())
				}
				return nil
			})
		case isTable(name):
			e.key, e.value = slices.Clone(e.key), slices.Clone(e.value)
			tables = append(tables, e)
		case !e.bucket: // no program puts an entry there: it was the root
			return im.damaged(int64(e.page), fmt.Sprintf("record %q in the root: the file was copied while a process wrote to it, or lost a page", name))
		default:
			other = name
		}
		return nil
	})
	switch {
	case err != nil:
		return state{}, nil, failure("open", im.path, err)
	case other != "":
		return state{}, nil, foreign(im.path, fmt.Sprintf("a bbolt database that holds the bucket %q, of another program", other))
	case !known:
		return state{}, nil, foreign(im.path, "a bbolt database of another program, or an empty one")
	case !slices.ContainsFunc(tables, func(t entry) bool { return string(t.key) == recordsBucket }):
		return state{}, nil, im.damaged(int64(im.meta.root), "the bucket of the records is gone")
	}
	return st, tables, nil
}

// verify reads the whole file: every page is one of the tree or free, and no two things at once; every record has the checksum
// it was written with; and there are as many records, with the sum of checksums, as the last commit said.
func (im *image) verify() error {
	im.seen = make([]bool, im.meta.high)
	defer func() { im.seen = nil }()
	if err := im.freelist(func(id uint64) error { return im.mark(id, 1) }); err != nil {
		return err
	}
	st, tables, err := im.roots()
	if err != nil {
		return err
	}
	var have state
	for _, t := range tables {
		table := string(t.key)
		if err := im.bucket(t, func(e entry) error {
			if e.bucket {
				return im.damaged(int64(e.page), fmt.Sprintf("bucket %q in %s", e.key, table))
			}
			rev, sum, _, err := decodeRecord(table, e.key, e.value)
			if err != nil {
				return im.damaged(int64(e.page), err.Error())
			}
			if rev > st.rev {
				return im.damaged(int64(e.page), fmt.Sprintf("record %q is of commit %d, the last one was %d", e.key, rev, st.rev))
			}
			have.count++
			have.sum += uint64(sum)
			return nil
		}); err != nil {
			return err
		}
	}
	if have.count != st.count || have.sum != st.sum {
		return im.damaged(-1, fmt.Sprintf("%d records of the %d that the last commit left, or not those: parts of it are older than the rest", have.count, st.count))
	}
	return nil
}
