package hostlocal

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Check reads every record of the network in one view, computes everything derived afresh and compares: whose every
// address is, which pages there are and what each says. It returns nil or an [*Error] around [ErrRecord] that names
// what is wrong first, or an error of the store. It changes nothing. Cost: linear in the records.
func (e *Engine) Check(ctx context.Context) error {
	recs, _, err := e.store.List(ctx, e.all(0))
	if err != nil {
		return err
	}
	return e.explain(e.check(recs), "check", Attachment{})
}

func (e *Engine) check(recs []store.Record) error {
	var h header
	holdings := make(map[Attachment]holding)
	holders := make(map[netip.Addr]Attachment)
	pages := make(map[pageID]uint64)
	for _, r := range recs {
		var err error
		switch e.kindOf(r.Key) {
		case kindHeader:
			if h, err = decodeHeader(r.Value); err == nil && e.rest(r.Key) != "" {
				err = ErrRecord
			}
		case kindAttachment:
			var who Attachment
			if who, err = e.parseAttachment(r.Key); err == nil {
				holdings[who], err = decodeHolding(r.Value)
			}
		case kindAddress:
			var a netip.Addr
			if a, err = e.parseAddress(r.Key); err == nil {
				holders[a], err = decodeHolder(r.Value)
			}
		case kindPage:
			var id pageID
			if id, err = e.parsePage(r.Key); err == nil {
				pages[id], err = decodeWord(r.Value)
			}
		case kindCursor:
			if _, err = decodeCursor(r.Value); err == nil && len(e.rest(r.Key)) != 4 {
				err = ErrRecord
			}
		default:
			err = fmt.Errorf("%w: of unknown kind", ErrRecord)
		}
		if err != nil {
			return fmt.Errorf("%w: key %q", err, r.Key)
		}
	}
	if err := checkHolders(h, holdings, holders); err != nil {
		return err
	}
	return checkPages(holders, pages)
}

// checkHolders compares attachments and addresses both ways.
func checkHolders(h header, holdings map[Attachment]holding, holders map[netip.Addr]Attachment) error {
	n := 0
	for who, own := range holdings {
		n += len(own.addresses)
		if own.epoch > h.epoch {
			return fmt.Errorf("%w: %s is of epoch %d, and now is %d", ErrRecord, who, own.epoch, h.epoch)
		}
		for _, a := range own.addresses {
			if holders[a] != who {
				return fmt.Errorf("%w: %s holds %s, which is in the hands of %q", ErrRecord, who, a, holders[a])
			}
		}
	}
	if n != len(holders) {
		return fmt.Errorf("%w: %d addresses have a holder, and attachments hold %d", ErrRecord, len(holders), n)
	}
	return nil
}

// checkPages computes all pages from the addresses.
func checkPages(holders map[netip.Addr]Attachment, pages map[pageID]uint64) error {
	want := make(map[pageID]uint64)
	level := make(map[pageID]uint64)
	for a := range holders {
		id, child := leafOf(a)
		level[id] |= 1 << child
	}
	for len(level) > 0 {
		above := make(map[pageID]uint64)
		for id, w := range level {
			want[id] = w
			if up, child, ok := id.parent(); ok && w == fullWord {
				above[up] |= 1 << child
			}
		}
		level = above
	}
	for id, w := range pages {
		if w != want[id] || w == 0 {
			return fmt.Errorf("%w: page %+v is %016x, not %016x", ErrRecord, id, w, want[id])
		}
	}
	if !maps.Equal(pages, want) {
		missing := slices.DeleteFunc(slices.Collect(maps.Keys(want)), func(id pageID) bool { return pages[id] != 0 })
		return fmt.Errorf("%w: %d pages are missing, one of them %+v", ErrRecord, len(missing), missing[0])
	}
	return nil
}
