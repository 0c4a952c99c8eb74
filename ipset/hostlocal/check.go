package hostlocal

import (
	"context"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Check reads every record of the network in one view, recomputes the derived records
// (the holder of each address, and each page) and compares. It changes nothing.
//
// It fails with ErrCorrupt and the first difference, or with an error of the store. Cost:
// linear in the records.
func (e *Engine) Check(ctx context.Context) error {
	recs, _, err := e.store.List(ctx, e.all(0))
	if err == nil {
		err = e.check(recs)
	}
	return e.explain(err, "check", Attachment{})
}

func (e *Engine) check(recs []store.Record) error {
	now, newest := make(map[string]uint64), make(map[string]uint64) // epochs of each scope
	want := make(map[string]string)                                 // what the attachments imply, by key
	level := make(map[pageID]uint64)                                // the pages of the lowest level
	derived := make(map[string]string)                              // what the store says
	for _, r := range recs {
		var err error
		switch kind, rest := e.split(r.Key); {
		case kind == kindHeader && (rest == "" || checkName("Scope", rest) == nil):
			h, bad := decode[header](r.Key, r.Value)
			err, now[rest] = bad, h.epoch
		case kind == kindAttachment:
			who, own, bad := e.parseAttachment(r)
			err, newest[own.scope] = bad, max(newest[own.scope], own.epoch)
			if own.user != (Attachment{}) {
				want[e.use(own.user)] = encode(use{strings.TrimPrefix(who.Container, keyPrefix), own.sequence})
			}
			for _, a := range own.addresses {
				if want[e.address(a)] != "" {
					return corrupt(r.Key, "holds %s, which another attachment holds", a)
				}
				want[e.address(a)] = encode(who)
				id, child := leafOf(a)
				level[id] |= 1 << child
			}
		case kind == kindAddress, kind == kindPage, kind == kindUse:
			derived[r.Key], err = inWrittenForm(kind, r.Key, r.Value)
		case kind == kindCursor:
			_, _, err = e.parseCursor(r)
		default:
			err = corrupt(r.Key, "of unknown kind")
		}
		if err != nil {
			return err
		}
	}
	for scope, epoch := range newest {
		if epoch > now[scope] {
			return corrupt(newKeys(e.network, scope).header(), "epoch %d, but an attachment is of epoch %d", now[scope], epoch)
		}
	}
	e.pages(level, want)
	for _, r := range recs { // in order, so that the answer is always the same
		if v, ok := derived[r.Key]; ok && v != want[r.Key] {
			return corrupt(r.Key, "is %q, want %q", v, want[r.Key])
		}
	}
	for key := range want {
		if derived[key] == "" {
			return corrupt(key, "missing")
		}
	}
	return nil
}

// pages adds the records of pages to want, starting from the pages of the lowest level.
func (e *Engine) pages(level map[pageID]uint64, want map[string]string) {
	for len(level) > 0 {
		above := make(map[pageID]uint64)
		for id, w := range level {
			want[e.page(id)] = encodeWord(w)
			if up, child, ok := id.Parent(width(id.v6)); ok && w == space.Full {
				above[pageID{id.v6, up}] |= 1 << child
			}
		}
		level = above
	}
}
