package main

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/google/btree"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
)

// backend is a datastore for Calico's client: ordered paths in memory with a revision each and the JSON that Calico's etcd
// backend writes. It answers as that one does. Safe for concurrent use.
type backend struct {
	// before, if not nil, is asked before every write and fails it with its error; reads are never failed by it.
	before func() error

	mu   sync.RWMutex
	tree *btree.BTreeG[*record]
	rev  uint64
}

// record is what is stored at a path.
type record struct {
	path string
	json []byte
	rev  uint64
}

func newBackend() *backend {
	return &backend{tree: btree.NewG(32, func(a, b *record) bool { return a.path < b.path })}
}

// pack returns what is to be stored of a pair.
func (b *backend) pack(kvp *model.KVPair) (*record, error) {
	path, err := model.KeyToDefaultPath(kvp.Key)
	if err != nil {
		return nil, cerrors.ErrorDatastoreError{Err: err, Identifier: kvp.Key}
	}
	r := &record{path: path}
	if r.json, err = model.SerializeValue(kvp); err != nil {
		return nil, cerrors.ErrorDatastoreError{Err: err, Identifier: kvp.Key}
	}
	return r, nil
}

// unpack returns a pair that its receiver may change.
func (b *backend) unpack(r *record, key model.Key) (*model.KVPair, error) {
	v, err := model.ParseValue(key, r.json)
	if err != nil {
		return nil, cerrors.ErrorParsingDatastoreEntry{RawKey: r.path, RawValue: string(r.json), Err: err}
	}
	return &model.KVPair{Key: key, Value: v, Revision: strconv.FormatUint(r.rev, 10)}, nil
}

// allow says whether a write may be made.
func (b *backend) allow(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cerrors.ErrorDatastoreError{Err: err}
	}
	if b.before != nil {
		if err := b.before(); err != nil {
			return cerrors.ErrorDatastoreError{Err: err}
		}
	}
	return nil
}

// put stores a record; the lock is held.
func (b *backend) put(r *record, kvp *model.KVPair) (*model.KVPair, error) {
	b.rev++
	r.rev = b.rev
	b.tree.ReplaceOrInsert(r)
	kvp.Revision = strconv.FormatUint(r.rev, 10)
	back, err := b.unpack(r, kvp.Key)
	if err == nil {
		kvp.Value = back.Value
	}
	return kvp, err
}

// write calls f with the record of a pair, if a write may be made; the lock is held.
func (b *backend) write(ctx context.Context, kvp *model.KVPair, f func(*record) (*model.KVPair, error)) (*model.KVPair, error) {
	if err := b.allow(ctx); err != nil {
		return nil, err
	}
	r, err := b.pack(kvp)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return f(r)
}

// Create implements the interface of the backends.
func (b *backend) Create(ctx context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	return b.write(ctx, kvp, func(r *record) (*model.KVPair, error) {
		if old, ok := b.tree.Get(r); ok {
			existing, err := b.unpack(old, kvp.Key)
			if err != nil {
				return nil, err
			}
			return existing, cerrors.ErrorResourceAlreadyExists{Identifier: kvp.Key}
		}
		return b.put(r, kvp)
	})
}

// Update implements the interface of the backends.
func (b *backend) Update(ctx context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	return b.write(ctx, kvp, func(r *record) (*model.KVPair, error) {
		if old, err := b.current(r, kvp.Key, kvp.Revision); err != nil {
			return old, err
		}
		return b.put(r, kvp)
	})
}

// current returns an error unless a record exists at the revision asked for.
func (b *backend) current(r *record, key model.Key, revision string) (*model.KVPair, error) {
	old, ok := b.tree.Get(r)
	if !ok {
		return nil, cerrors.ErrorResourceDoesNotExist{Identifier: key}
	}
	rev, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return nil, cerrors.ErrorValidation{ErroredFields: []cerrors.ErroredField{{Name: "ResourceVersion", Value: revision}}}
	}
	if rev == old.rev {
		return nil, nil
	}
	existing, err := b.unpack(old, key)
	if err != nil {
		return nil, err
	}
	return existing, cerrors.ErrorResourceUpdateConflict{Identifier: key}
}

// Apply implements the interface of the backends.
func (b *backend) Apply(ctx context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	return b.write(ctx, kvp, func(r *record) (*model.KVPair, error) { return b.put(r, kvp) })
}

// DeleteKVP implements the interface of the backends.
func (b *backend) DeleteKVP(ctx context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	return b.Delete(ctx, kvp.Key, kvp.Revision)
}

// Delete implements the interface of the backends.
func (b *backend) Delete(ctx context.Context, key model.Key, revision string) (*model.KVPair, error) {
	if err := b.allow(ctx); err != nil {
		return nil, err
	}
	path, err := model.KeyToDefaultDeletePath(key)
	if err != nil {
		return nil, err
	}
	r := &record{path: path}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, ok := b.tree.Get(r)
	if !ok {
		return nil, cerrors.ErrorResourceDoesNotExist{Identifier: key}
	}
	if revision != "" {
		if latest, err := b.current(r, key, revision); err != nil {
			return latest, err
		}
	}
	b.rev++
	b.tree.Delete(r)
	return b.unpack(old, key)
}

// Get implements the interface of the backends.
func (b *backend) Get(ctx context.Context, key model.Key, _ string) (*model.KVPair, error) {
	if err := ctx.Err(); err != nil {
		return nil, cerrors.ErrorDatastoreError{Err: err}
	}
	path, err := model.KeyToDefaultPath(key)
	if err != nil {
		return nil, err
	}
	b.mu.RLock()
	r, ok := b.tree.Get(&record{path: path})
	b.mu.RUnlock()
	if !ok {
		return nil, cerrors.ErrorResourceDoesNotExist{Identifier: key}
	}
	return b.unpack(r, key) // records are replaced, never changed
}

// List implements the interface of the backends.
func (b *backend) List(ctx context.Context, l model.ListInterface, _ string) (*model.KVPairList, error) {
	if err := ctx.Err(); err != nil {
		return nil, cerrors.ErrorDatastoreError{Err: err}
	}
	root := model.ListOptionsToDefaultPathRoot(l)
	if !strings.HasSuffix(root, "/") {
		root += "/"
	}
	b.mu.RLock()
	list := &model.KVPairList{Revision: strconv.FormatUint(b.rev, 10)}
	var found []*record
	b.tree.AscendGreaterOrEqual(&record{path: root}, func(r *record) bool {
		if !strings.HasPrefix(r.path, root) {
			return false
		}
		found = append(found, r)
		return true
	})
	b.mu.RUnlock()
	for _, r := range found {
		key := l.KeyFromDefaultPath(r.path) // as the etcd backend, which has nothing but paths
		if key == nil {
			continue
		}
		kvp, err := b.unpack(r, key)
		if err != nil {
			return nil, err
		}
		list.KVPairs = append(list.KVPairs, kvp)
	}
	return list, nil
}

// Watch is not used by Calico's IPAM client.
func (b *backend) Watch(context.Context, model.ListInterface, bapi.WatchOptions) (bapi.WatchInterface, error) {
	return nil, cerrors.ErrorOperationNotSupported{Operation: "watch"}
}

// EnsureInitialized implements the interface of the backends.
func (b *backend) EnsureInitialized() error { return nil }

// Clean implements the interface of the backends.
func (b *backend) Clean() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tree.Clear(false)
	return nil
}
