package kubestore

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What the data of log and snapshot objects holds, in the frame of package wire.
//
//	commits:   seq, id, id of the object before, revision before, number of commits; per commit the number of ops; per op
//	           its kind, key, and value
//	snapshot:  seq, id of the last object in it, a snapshot of store.Memory
const (
	commitsMagic  = "ipalloc kube commits\n"
	snapshotMagic = "ipalloc kube snapshot\n"
	frameVersion  = 1
)

// id is the random name of a log object's content. It tells whose commit is in a slot.
type id [16]byte

// author is the random name of a Store. The ids of its commit objects begin with it.
type author [8]byte

func newAuthor() (a author) {
	_, _ = rand.Read(a[:]) // never fails
	return a
}

// author returns whose commit object has this id.
func (v id) author() author { return author(v[:len(author{})]) }

// newFrameID returns the id of a commit object of this process.
func (s *Store) newFrameID() id {
	v := newID()
	copy(v[:], s.pace.self[:])
	return v
}

func newID() (v id) {
	_, _ = rand.Read(v[:]) // never fails
	return v
}

func (v id) String() string { return hex.EncodeToString(v[:]) }

// frame is the content of a log object: commits of one process that were written together. A new store begins with a log
// of frames 0 to slots-1 without commits; their objects hold no data.
type frame struct {
	seq     uint64
	id      id
	prev    id
	rev     uint64 // of the store before these commits; each raises it by one
	commits [][]store.Op
}

// code codes the content.
func (f *frame) code(c *wire.Coder) {
	wire.Uint(c, &f.seq)
	f.id.code(c)
	f.prev.code(c)
	wire.Uint(c, &f.rev)
	wire.List(c, &f.commits, 1, func(c *wire.Coder, ops *[]store.Op) { wire.List(c, ops, 2, codeOp) })
}

func codeOp(c *wire.Coder, op *store.Op) {
	wire.Byte(c, &op.Kind)
	wire.String(c, &op.Key)
	switch {
	case op.Kind == store.Put:
		wire.String(c, &op.Value)
	case op.Kind != store.Delete:
		c.Fail("op of kind %d", op.Kind)
	}
	if !c.Writes {
		op.Expect = store.AnyRevision
	}
}

func (f *frame) encode() []byte {
	w := wire.Frame(nil, commitsMagic, frameVersion)
	f.code(w)
	data, _ := w.Finish() // the ops are those of commits that were checked
	return data
}

// decodeFrame reads the content of a log object.
func decodeFrame(o *object) (*frame, error) {
	f := &frame{seq: o.Spec.Seq}
	if len(o.Spec.Data) == 0 && o.Spec.Seq < maxSlots {
		return f, nil
	}
	r := wire.Open(o.Spec.Data, commitsMagic, frameVersion)
	f.code(r)
	if err := r.End(); err != nil {
		return nil, corrupt(o.Metadata.Name, "%v", err)
	}
	if f.seq != o.Spec.Seq {
		return nil, corrupt(o.Metadata.Name, "commit object %d says that it is %d", f.seq, o.Spec.Seq)
	}
	return f, nil
}

func (v *id) code(c *wire.Coder) {
	b := v[:]
	if wire.Blob(c, &b); c.Writes {
		return
	}
	if len(b) != len(v) {
		c.Fail("an id of %d bytes", len(b))
	}
	copy(v[:], b)
}

// slotName returns the name of the object that holds commit object seq, of a store with that many slots.
func slotName(name string, seq uint64, slots int) string {
	return fmt.Sprintf("%s.log.%d", name, seq%uint64(slots))
}

// partName returns the name of a part of a snapshot. The generation is first, so that those which no head will ever name
// are recognised by their names.
func partName(name string, s *snapshot, part int) string {
	return fmt.Sprintf("%s.snapshot.%d.%s.%d", name, s.Generation, s.ID, part)
}

// parsePart returns the generation and id in the name of a part.
func parsePart(name, object string) (s snapshot, ok bool) {
	rest, ok := strings.CutPrefix(object, name+".snapshot.")
	if !ok {
		return s, false
	}
	n, err := fmt.Sscanf(strings.ReplaceAll(rest, ".", " "), "%d %s %d", &s.Generation, &s.ID, &s.Parts)
	return s, n == 3 && err == nil
}
