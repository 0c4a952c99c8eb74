package ipset

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// memo is the record of what was given under a request key, or to a sticky handle. It has no end of its own: a record
// t<kind><time><key> beside each, written in the same commit, lists memos by age, so that forgetting the old ones costs what there is
// to forget.
type memo struct {
	key    string // of the record, "" for no memo
	at     int64  // when it was written, 0 if it is not there
	digest string // of the request's arguments, "" without
	// What was given: addresses, each with the prefix length of its block, and their sequence numbers.
	ids  []netip.Prefix
	seqs []uint64
}

const memoVersion = 1

func (m *memo) encode() string {
	b := binary.AppendVarint([]byte{memoVersion}, m.at)
	b = wire.AppendString(b, m.digest)
	b = binary.AppendUvarint(b, uint64(len(m.ids)))
	for i, id := range m.ids {
		b = binary.AppendUvarint(appendBlockID(b, id), m.seqs[i])
	}
	return string(b)
}

// decodeMemo reads the record of a key, if there is one.
func decodeMemo(key, value string, ok bool) (memo, error) {
	m := memo{key: key}
	if !ok {
		return m, nil
	}
	r := &wire.Reader{S: value}
	if v := r.Byte(); v != memoVersion {
		r.Fail("version")
	}
	m.at, m.digest = r.Varint(), r.Bytes(r.Uvarint())
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		size := uint64(18)
		if r.S != "" && r.S[0] == '4' {
			size = 6
		}
		id, ok := parseID(r.Bytes(size))
		if !ok {
			r.Fail("address")
		}
		m.ids, m.seqs = append(m.ids, id), append(m.seqs, r.Uvarint())
	}
	if r.Err != nil || r.S != "" {
		return memo{}, fmt.Errorf("%w: what was given under a request key or to a sticky handle", ipalloc.ErrCorrupt)
	}
	return m, nil
}

// reserve makes room for what remember writes, and returns how many records it writes besides the memo: the entry by age and the
// removal of the former entry.
func (m *memo) reserve(t *txn) int {
	if m.key == "" {
		return 0
	}
	t.Touch(m.key)
	if m.at == 0 {
		return 1
	}
	return 2
}

// remember writes a memo of now, with what has been given besides, in place of the one that was found.
func (t *txn) remember(m *memo, given ...[]Allocation) {
	if m.key == "" {
		return
	}
	for _, als := range given {
		for _, al := range als {
			m.ids, m.seqs = append(m.ids, al.Prefix()), append(m.seqs, al.Seq)
		}
	}
	was := m.at
	m.at = t.now
	t.Put(m.key, m.encode())
	if was == t.now {
		return
	}
	if was != 0 {
		t.Add(store.Op{Kind: store.Delete, Key: agedKey(was, m.key), Expect: store.AnyRevision})
	}
	t.Add(store.Op{Kind: store.Put, Key: agedKey(t.now, m.key), Expect: store.AnyRevision})
}

// sweepAged forgets the memos of a kind that are older than age, normal if that is 0 and none if it is below.
func (e *Engine) sweepAged(ctx context.Context, kind string, age, normal time.Duration) (forgotten int, err error) {
	if age == 0 {
		age = normal
	}
	if age < 0 {
		return 0, nil
	}
	now, err := e.clock()
	if err != nil {
		return 0, err
	}
	before := agedKey(max(now-int64(age)+1, 0), kind)
	r := store.Range{From: kindAged + kind[1:], To: before[:agedTimeEnd], Limit: e.agedPerCommit()}
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil || len(recs) == 0 {
			return forgotten, err
		}
		r.From = recs[len(recs)-1].Key + "\x00"
		last := len(recs) < r.Limit
		p := agedPlan{entries: recs}
		if err := e.run.Do(ctx, &p); err != nil {
			return forgotten, err
		}
		if forgotten += p.forgotten; last {
			return forgotten, nil
		}
	}
}

// agedPerCommit is how many memos go in one commit: each is two records.
func (e *Engine) agedPerCommit() int {
	if limit := e.limits.Ops; limit > 0 {
		return max(1, limit/3)
	}
	return 256
}

// agedPlan forgets the memos that some entries name, as far as they still are of that age. Sticky handles that hold an address
// grow young again.
type agedPlan struct {
	entries   []store.Record
	forgotten int
}

// Plan implements [occ.Plan]. An earlier plan of the transaction may have replaced one of the entries.
func (p *agedPlan) Plan(t *txn) error {
	if t.Pending() {
		return occ.ErrFirst
	}
	p.forgotten = 0
	var keys []string
	for _, r := range p.entries {
		if isAgedKey(r.Key) { // Check reports others
			keys = append(keys, r.Key[agedTimeEnd:])
		}
	}
	if err := t.Load(keys...); err != nil {
		return err
	}
	n := 0
	for _, r := range p.entries {
		if !isAgedKey(r.Key) {
			continue
		}
		t.Add(store.Op{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision})
		n++
		key := r.Key[agedTimeEnd:]
		value, ok, err := t.Get(key)
		if err != nil {
			return err
		}
		m, err := decodeMemo(key, value, ok)
		if err != nil {
			return err
		}
		if agedKey(m.at, key) != r.Key {
			continue // gone, or written again since: it has another entry
		}
		holds, err := t.sticks(key)
		switch {
		case err != nil:
			return err
		case holds:
			m.at = 0 // its entry goes already
			t.remember(&m)
			n++
		default:
			t.Delete(key)
			p.forgotten++
		}
	}
	return t.Room(n)
}

// sticks reports whether a memo is one of a sticky handle that holds an address.
func (t *txn) sticks(key string) (bool, error) {
	if key[:2] != kindSticky {
		return false, nil
	}
	r := handleRange(key[2:])
	r.Limit = 1
	recs, err := t.List(r)
	return len(recs) > 0, err
}
