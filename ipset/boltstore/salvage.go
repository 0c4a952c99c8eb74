package boltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// Salvaged is what [Salvage] found.
type Salvaged struct {
	// Records is the number of records in the new file.
	Records uint64
	// Expected is the number that the damaged file should have, if Known.
	Expected uint64
	Known    bool
	// Whole reports that no record is missing or older than the rest: the new file has all records of the old one.
	Whole bool
}

// Salvage writes the readable records of a damaged file into a new file. The new file is a store, but records may be missing or
// stale, unless Salvaged.Whole is set. Before you use it, run Check of an engine on it. Addresses of lost records can be assigned
// again; only a list of the addresses in use, from another source, identifies them. Prefer a backup if there is one.
//
// If only the newer meta page is damaged, Salvage saves the whole last transaction. Else it takes every record whose checksum is
// right, from every page in use. In a copy made while a process wrote to the file, the list of free pages cannot be trusted.
// Salvage then reads all pages and takes the newest version of each record. It does not write to the damaged file, which must
// not be open in any process.
//
// Errors: os.ErrExist if to exists; ErrForeign if from has nothing that this package wrote; ipalloc.ErrVersion if a newer program
// wrote it.
func Salvage(ctx context.Context, from, to string) (Salvaged, error) {
	var out Salvaged
	err := func() error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		if ours, err := lockFile(f, false); err != nil || !ours {
			return errors.Join(err, locked(from, 0, "", nil))
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		im := salvageImage(f, from, info.Size())
		out, err = im.salvage(ctx, to)
		return err
	}()
	if err != nil {
		return out, failure("salvage", from, err)
	}
	return out, nil
}

// salvageImage is readImage for a file that may have no meta page, or fewer pages than that says.
func salvageImage(f io.ReaderAt, path string, size int64) *image {
	if im, err := readImage(f, path, size); err == nil {
		return im
	}
	im := &image{file: f, path: path, size: size, cut: true}
	readable := 0
	if m, err := im.metaAt(0); err == nil {
		im.meta = m
		readable++
	}
	for n := int64(minPage); n <= maxPage && n < size; n *= 2 {
		m, err := im.metaAt(n)
		if err != nil || int64(m.pageSize) != n {
			continue
		}
		if readable++; m.txid >= im.meta.txid {
			im.meta = m
		}
	}
	im.stale = readable == 1
	if im.meta.pageSize == 0 {
		im.meta = meta{pageSize: uint32(os.Getpagesize()), root: noFreelist, freelist: noFreelist}
	}
	im.pageSize = int64(im.meta.pageSize)
	im.meta.high = uint64(size / im.pageSize)
	return im
}

// rescued are the records that were found, by table and key.
type rescued map[string]map[string]found

type found struct {
	rev uint64
	sum uint32
	raw []byte
}

// allPages returns the image with every page of the file in reach, whatever the meta page says.
func (im *image) allPages() *image {
	all := *im
	all.meta.high = uint64(im.size / im.pageSize)
	all.meta.freelist = noFreelist
	return &all
}

// states visits the state in every page that has one, with the number of that page: the root of the file as of some
// transaction, if it is a leaf.
func (im *image) states(visit func(page uint64, st state)) {
	all := im.allPages()
	_ = all.leaves(context.Background(), make([]bool, all.meta.high), func(of string, e entry) bool {
		if of == stateBucket && string(e.key) == stateKey {
			if st, err := parseState(e.value); err == nil {
				visit(e.page, st)
			}
		}
		return false
	})
}

// newest returns the state of the last commit whose pages are in the file.
func (im *image) newest() (last state) {
	im.states(func(_ uint64, st state) {
		if st.rev >= last.rev {
			last = st
		}
	})
	return last
}

// newer returns the records of a transaction later than st that is whole in the file, although no meta page shows it: as
// many records, with the sum of checksums, as its state says.
func (im *image) newer(st state) (last state, tables rescued, ok bool) {
	im.states(func(page uint64, at state) {
		if at.rev <= st.rev || ok && at.rev <= last.rev {
			return
		}
		all := im.allPages()
		all.meta.root = page
		if have, err := all.tables(); err == nil {
			if sum := have.sum(); sum.count == at.count && sum.sum == at.sum {
				last, tables, ok = at, have, true
			}
		}
	})
	return last, tables, ok
}

// tables returns the records of the tree under the root.
func (im *image) tables() (rescued, error) {
	_, roots, err := im.roots()
	if err != nil {
		return nil, err
	}
	out := rescued{}
	for _, t := range roots {
		table := string(t.key)
		out[table] = map[string]found{}
		if err := im.bucket(t, func(e entry) error {
			rev, sum, _, err := decodeRecord(table, e.key, e.value)
			out[table][string(e.key)] = found{rev, sum, slices.Clone(e.value)}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sum returns the state that the records make: count, sum and the highest revision.
func (r rescued) sum() (st state) {
	for _, table := range r {
		for _, f := range table {
			st.rev = max(st.rev, f.rev)
			st.count++
			st.sum += uint64(f.sum)
		}
	}
	return st
}

// salvage writes what can be read into a new file.
func (im *image) salvage(ctx context.Context, to string) (Salvaged, error) {
	st, _, stErr := im.roots()
	if errors.Is(stErr, ErrForeign) || errors.Is(stErr, ipalloc.ErrVersion) {
		return Salvaged{}, stErr
	}
	if im.stale && !im.cut {
		if last, tables, ok := im.newer(st); ok {
			out := Salvaged{Records: last.count, Expected: last.count, Known: true, Whole: true}
			return out, makeFile(to, 0o600, func(f *os.File) error { return writeTables(f.Name(), last, tables) })
		}
	}
	if im.stale || stErr != nil { // what the meta page shows as free may hold later transactions
		im = im.allPages()
	}
	tables, err := im.rescue(ctx)
	if err != nil {
		return Salvaged{}, err
	}
	next := tables.sum()
	if next.count == 0 {
		return Salvaged{}, foreign(im.path, "no record has a right checksum")
	}
	out := Salvaged{Records: next.count}
	if stErr == nil {
		out.Known, out.Expected = true, st.count
		out.Whole = st.count == next.count && st.sum == next.sum
		next.rev = max(next.rev, st.rev)
	}
	if !out.Whole {
		next.rev++ // so that no revision of the old file is valid in this one
	}
	return out, makeFile(to, 0o600, func(f *os.File) error { return writeTables(f.Name(), next, tables) })
}

// rescue returns the records with a right checksum on pages that are in use. Which table a record belongs to the checksum
// tells as well.
func (im *image) rescue(ctx context.Context) (rescued, error) {
	free := make([]bool, im.meta.high)
	if err := im.freelist(func(id uint64) error { free[id] = true; return nil }); err != nil {
		clear(free)
	}
	tables := rescued{recordsBucket: {}}
	if err := im.leaves(ctx, free, func(_ string, e entry) bool {
		if e.bucket && isTable(string(e.key)) {
			tables[string(e.key)] = map[string]found{}
		}
		return false
	}); err != nil {
		return nil, err
	}
	return tables, im.leaves(ctx, free, func(of string, e entry) bool {
		if e.bucket {
			return isTable(string(e.key))
		}
		for name, table := range tables {
			rev, sum, _, err := decodeRecord(name, e.key, e.value)
			if err != nil || of != "" && of != name {
				continue
			}
			if have, ok := table[string(e.key)]; !ok || have.rev < rev {
				table[string(e.key)] = found{rev, sum, slices.Clone(e.value)}
			}
			return true
		}
		return false
	})
}

// leaves visits every entry of every leaf page that is not free, and those of the buckets that are small enough to be in
// another's page, with that bucket's name. visit reports whether the entry is good; if one of a page is, the pages that belong
// to it are not looked at on their own.
func (im *image) leaves(ctx context.Context, free []bool, visit func(of string, e entry) bool) error {
	for id := uint64(2); id < im.meta.high; id++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if free[id] {
			continue
		}
		b, flags, count, err := im.page(nil, id)
		if err != nil || flags != flagLeaf {
			continue
		}
		good := false
		// An error ends the page, not the search.
		end, _ := im.leaf(id, b, count, nil, nil, func(e entry) error {
			good = visit("", e) || good
			if e.bucket && len(e.value) >= 16 && binary.NativeEndian.Uint64(e.value) == 0 {
				_ = im.bucket(e, func(inner entry) error {
					good = visit(string(e.key), inner) || good
					return nil
				})
			}
			return nil
		})
		if good && end > 0 {
			id += (end - 1) / uint64(im.pageSize) // not what the head says belongs to it, which may be wrong
		}
	}
	return nil
}

// writeTables writes tables into an empty file.
func writeTables(path string, st state, tables rescued) error {
	w, err := newPacker(path)
	if err != nil {
		return err
	}
	err = w.put([]byte(stateBucket), []byte(stateKey), st.append(nil))
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		for _, key := range slices.Sorted(maps.Keys(tables[name])) {
			if err == nil {
				err = w.put([]byte(name), []byte(key), tables[name][key].raw)
			}
		}
	}
	return errors.Join(err, w.close(err == nil))
}
