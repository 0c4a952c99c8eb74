package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// entryFile keeps the entries of an allocator as a file says. See [entrySet].
type entryFile struct {
	*entrySet
	path string

	seen    []byte
	settled bool // what was seen is in force
}

// openEntries reads the file and adds its entries. Unlike later, an error is final.
func openEntries(path string, set *entrySet) (*entryFile, error) {
	f := &entryFile{entrySet: set, path: path}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	f.seen = data
	if _, err := f.applyFile(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.settled = true
	return f, nil
}

// follow looks at the file again and again until ctx ends, and calls added when there
// are new entries.
func (f *entryFile) follow(ctx context.Context, period time.Duration, added func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if f.look() {
				added()
			}
		case <-ctx.Done():
			return
		}
	}
}

// look reads the file once and reports whether there are new entries. It applies what
// the look before has seen too: what only one has seen may be half written. What can't
// be applied is tried again, as what stands in its way may go: the last node of an
// entry of the same name.
func (f *entryFile) look() (added bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := readFile(f.path)
	switch {
	case err == nil && !bytes.Equal(data, f.seen):
		f.seen, f.settled, f.refused = data, false, true
		return false
	case err == nil && !f.settled:
		added, err = f.applyFile()
		f.settled = err == nil
	}
	f.complain(f.path, err, "the file of ClusterCIDRs is not in force, or not all of it")
	f.refused = err != nil
	return added
}

// applyFile makes the entries those of the file as it was seen. A file that cannot be
// read as a whole changes nothing; of one with entries that are refused, the others are
// in force afterwards.
func (f *entryFile) applyFile() (added bool, err error) {
	entries, err := parseEntries(f.seen)
	if err != nil {
		return false, err
	}
	added, refused := f.apply(entries)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		errs = append(errs, fmt.Errorf("%s: %w", name, refused[name]))
	}
	return added, errors.Join(errs...)
}
