package kubestore

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/ipalloc/ipalloc"
)

// version is the form of the objects that this package writes and reads.
const version = 1

// object returns an object of the store without content.
func (s *Store) object(name, role string) *object {
	return &object{
		APIVersion: apiVersion, Kind: kind,
		Metadata: metadata{Name: name, Labels: map[string]string{nameLabel: s.name, roleLabel: role}},
		Spec:     spec{Store: s.id, Role: role},
	}
}

// open reads the head, and makes the store if there is none or it was not completed.
func (s *Store) open(ctx context.Context, o Options) error {
	var head *object
	err := s.retry(ctx, func() (err error) {
		head, err = s.client.get(ctx, s.name)
		return err
	})
	switch {
	case gone(err, s.name):
		if o.NoCreate {
			return &ipalloc.Error{Package: "kubestore", Op: "open", Name: s.name, Reason: "no store of that name", Err: ipalloc.ErrNotFound}
		}
		if head, err = s.createHead(ctx, o); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	switch h := &head.Spec; {
	case h.Role != roleHead || h.Store == "":
		return mismatch(s.name, "the object is not the head of a store")
	case h.Version > version:
		return &ipalloc.Error{Package: "kubestore", Op: "open", Name: s.name, Err: ipalloc.ErrVersion,
			Reason: fmt.Sprintf("the store has version %d of the format, this release knows up to %d", h.Version, version)}
	case h.Slots < minSlots || h.Slots > maxSlots:
		return corrupt(s.name, "%d log objects", h.Slots)
	}
	s.id, s.slots = head.Spec.Store, head.Spec.Slots
	if head.Spec.Ready {
		return nil
	}
	return s.complete(ctx, head)
}

// mismatch returns the error of objects that are not of this store.
func mismatch(name, format string, args ...any) error {
	return &ipalloc.Error{Package: "kubestore", Op: "open", Name: name, Reason: fmt.Sprintf(format, args...), Err: ipalloc.ErrMismatch}
}

// createHead creates the head of a new store, or returns that of another process that was faster.
func (s *Store) createHead(ctx context.Context, o Options) (head *object, err error) {
	left := ""
	err = s.retry(ctx, func() error {
		return s.client.list(ctx, s.name, roleLog, true, func(o *object) error {
			left = o.Metadata.Name
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if left != "" {
		if head, err = s.client.get(ctx, s.name); gone(err, s.name) {
			err = mismatch(s.name, "the head is not there, but %q of a store of that name is", left)
		}
		return head, err
	}
	s.id = newID().String()
	h := s.object(s.name, roleHead)
	h.Spec.Version, h.Spec.Slots, h.Spec.Seq = version, o.Slots, uint64(o.Slots)-1
	err = s.retry(ctx, func() (err error) {
		if head, err = s.client.create(ctx, h); exists(err) {
			head, err = s.client.get(ctx, s.name)
		}
		return err
	})
	return head, err
}

// creators is how many log objects are created at a time.
const creators = 8

// complete creates the log objects that are not there, and then marks the store as ready. Other processes may do the same.
func (s *Store) complete(ctx context.Context, head *object) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for c := range creators {
		group.Go(func() {
			for i := c; i < s.slots; i += creators {
				if err := s.createSlot(ctx, uint64(i)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	head.Spec.Ready = true
	return s.retry(ctx, func() error {
		_, err := s.client.update(ctx, head)
		if !is(err, http.StatusConflict) {
			return err
		}
		now, err := s.client.get(ctx, s.name)
		if err == nil && !(now.Spec.Store == s.id && now.Spec.Ready) {
			err = mismatch(s.name, "the store was removed while it was made")
		}
		return err
	})
}

func (s *Store) createSlot(ctx context.Context, seq uint64) error {
	o := s.object(slotName(s.name, seq, s.slots), roleLog)
	o.Spec.Seq = seq
	return s.retry(ctx, func() error {
		_, err := s.client.create(ctx, o)
		if !exists(err) {
			return err
		}
		there, err := s.client.get(ctx, o.Metadata.Name)
		if err == nil && there.Spec.Store != s.id {
			err = mismatch(o.Metadata.Name, "the object is of another store, %q; this one is %q", there.Spec.Store, s.id)
		}
		return err
	})
}
