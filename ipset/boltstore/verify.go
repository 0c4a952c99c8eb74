package boltstore

import (
	"encoding/binary"
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

// branches reads the branch pages of all tables and the list of free pages: every page below them is a page of the file, not free, and
// named once. bbolt follows page numbers without a bound, and a page that names itself or one above it ends the process. The pages of the
// lowest level are not read. All leaves of a tree have the same depth, and a page that is no branch page leads nowhere.
func (im *image) branches(tables []entry) error {
	im.seen = make([]bool, im.meta.high)
	defer func() { im.seen, im.unread = nil, 0 }()
	if err := im.freelist(func(id uint64) error { return im.mark(id, 1) }); err != nil {
		return err
	}
	for _, t := range tables {
		depth, err := im.height(t)
		if err != nil {
			return err
		}
		if im.unread = depth; depth == 0 { // one leaf
			continue
		}
		if err := im.bucket(t, func(entry) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// height returns how many levels of branch pages the tree of a bucket has. It follows the first entry of each.
func (im *image) height(bucket entry) (int, error) {
	if !bucket.bucket || len(bucket.value) < 16 {
		return 0, im.damaged(int64(bucket.page), fmt.Sprintf("%q is not a bucket", bucket.key))
	}
	id, unmarked := binary.NativeEndian.Uint64(bucket.value), *im
	unmarked.seen = nil
	for depth := range maxDepth {
		if id == 0 { // within its entry
			return 0, nil
		}
		b, flags, count, err := unmarked.page(nil, id)
		if err != nil || flags != flagBranch {
			return depth, err
		}
		if count == 0 {
			return 0, im.damaged(int64(id), "a branch without children")
		}
		id = binary.NativeEndian.Uint64(b[pageHead+8:])
	}
	return 0, im.damaged(int64(id), "the tree is too deep")
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
