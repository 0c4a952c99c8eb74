package hostlocal

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// GCArgs are the arguments of [Engine.GC].
type GCArgs struct {
	// Valid lists the attachments to keep. With an empty list, GC releases everything, so
	// pass an empty list only if it is complete.
	Valid []Attachment
	// Made is when Valid was complete: GC keeps attachments that were added later. The
	// zero Time means the time of the call. Times are compared with the nodes' clocks.
	Made time.Time
	// AllScopes makes GC release in every scope of the network. Valid must list the attachments of all nodes.
	AllScopes bool
	// Keys lists the keys to keep. If the list is empty, GC keeps all keys. Otherwise GC
	// releases every other key that came out of use before Made.
	Keys []string
	// Idle, if positive, makes GC also release keys that came out of use at least that
	// long ago.
	Idle time.Duration
}

// fate is the treatment of an attachment in a sweep.
type fate int

const (
	stays    fate = iota
	outOfUse      // a key keeps its addresses, and its user ends
	ends
)

// GC releases the addresses of every attachment of the engine's scope that is not in
// args.Valid, and returns them by attachment. An attachment without interface is valid if
// Valid names its container. A key whose user is not valid comes out of use.
//
// It works in steps of one commit each. After an error the earlier steps are done, and GC
// returns their result with the error. It fails with ErrInvalid for an impossible
// attachment in Valid, before it releases anything, with ErrCorrupt, with ErrConflict and
// with the store's errors. GC keeps attachments that are added while it runs. Cost:
// linear in the attachments of all scopes.
func (e *Engine) GC(ctx context.Context, args GCArgs) ([]Holding, error) {
	keep := make(map[Attachment]bool, 2*len(args.Valid))
	for _, a := range args.Valid {
		if err := a.check(); err != nil {
			return nil, e.explain(err, "gc", a)
		}
		keep[a] = true
		keep[Attachment{Container: a.Container}] = true
	}
	began := e.now()
	made := began
	if !args.Made.IsZero() {
		made = args.Made.UnixNano()
	}
	// Attachments of an earlier boot are released anyway and must not be counted.
	err := e.do(ctx, "gc", Attachment{}, func(t *txn) error {
		_, err := t.begin(e)
		if err == nil && e.scope != "" {
			err = t.touch()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	freed, err := e.sweep(ctx, func(a Attachment, h holding) fate {
		key, isKey := strings.CutPrefix(a.Container, keyPrefix)
		unlisted := len(args.Keys) > 0 && !slices.Contains(args.Keys, key) && h.added <= made
		old := args.Idle > 0 && h.added <= began-int64(args.Idle)
		idle := h.user == Attachment{}
		switch ours := args.AllScopes || h.scope == e.scope; {
		case isKey && idle && (unlisted || old):
			return ends
		case isKey && idle, !ours, h.added > made, !isKey && keep[a], isKey && keep[h.user]:
			return stays
		case isKey:
			return outOfUse
		}
		return ends
	})
	return freed, e.explain(err, "gc", Attachment{})
}

// Holding is an attachment with all its addresses.
type Holding struct {
	// For a key, Attachment has the container "key/" and the key.
	Attachment Attachment
	Addresses  []netip.Addr
	// Scope is the scope of the engine that added the attachment, empty for a key that is
	// out of use. Import ignores it.
	Scope string
	// Added is when the attachment last got an address. For a key, it is when the key was
	// last used, or came out of use. For Import, the zero Time means now.
	Added time.Time
	// User is the attachment that uses a key, if any. Import ignores it: the key is then
	// out of use.
	User Attachment
	// Sequence counts the attachments that have used a key. It is 0 if Attachment is not
	// a key.
	Sequence uint64
}

// of returns a holding in the form that callers see.
func (h holding) of(who Attachment) Holding {
	return Holding{who, h.addresses, h.scope, time.Unix(0, h.added), h.user, h.sequence}
}

// systemTime is the clock of engines without Config.Now; tests set it.
var systemTime = time.Now

// now returns the time for a record. It is read for each commit, because a call may have
// waited.
func (e *Engine) now() int64 { return e.clock().UnixNano() }

// sweepPage is how many attachments are read at a time.
const sweepPage = 1024

// sweep ends the attachments that goes selects. The commit calls goes again.
func (e *Engine) sweep(ctx context.Context, goes func(Attachment, holding) fate) (freed []Holding, err error) {
	for r := e.all(kindAttachment); ; {
		r.Limit = sweepPage
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return freed, err
		}
		var batch []Attachment
		for _, rec := range recs {
			a, h, err := e.parseAttachment(rec)
			if err != nil {
				return freed, err
			}
			if goes(a, h) != stays {
				batch = append(batch, a)
			}
		}
		for step := range slices.Chunk(batch, e.stepSize()) {
			done, err := e.sweepStep(ctx, step, goes)
			freed = append(freed, done...)
			if err != nil {
				return freed, err
			}
		}
		if len(recs) < sweepPage {
			return freed, nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// stepSize is how many attachments go into one commit.
func (e *Engine) stepSize() int {
	if most := e.store.Limits().Ops; most > 0 {
		return max(1, most/16) // two addresses with a record, a leaf and some pages above each, and the header
	}
	return sweepPage
}

// sweepStep releases attachments in one commit.
func (e *Engine) sweepStep(ctx context.Context, step []Attachment, goes func(Attachment, holding) fate) ([]Holding, error) {
	var freed []Holding
	need := []string{e.header()}
	for _, a := range step {
		need = append(need, e.attachment(a))
	}
	err := e.attempt(ctx, func(t *txn) error {
		freed = nil
		if err := t.Load(need...); err != nil {
			return err
		}
		if _, _, err := t.Get(t.header()); err != nil { // every commit names it
			return err
		}
		for _, a := range step {
			h, err := t.holding(a)
			what := stays
			if err == nil && len(h.addresses) > 0 {
				what = goes(a, h)
			}
			switch what {
			case ends:
				if _, err = t.release(a); err == nil {
					freed = append(freed, h.of(a))
				}
			case outOfUse:
				err = t.endUse(e, h.user)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}
