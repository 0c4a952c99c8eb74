package txn

import (
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A memo and its entry by age are written together, and the commit verifies the memo that it replaces. Two requests with one key
// therefore cannot both be the first.

// Remember writes a memo of now, with what has been given besides, in place of the one that was found.
func (t *Txn) Remember(m *record.Memo, given ...[]alloc.Allocation) {
	if m.Key == "" {
		return
	}
	for _, als := range given {
		for _, al := range als {
			m.Ids, m.Seqs = append(m.Ids, al.Prefix()), append(m.Seqs, al.Seq)
		}
	}
	was := m.At
	m.At = t.Now
	t.memo = m.Append(t.memo[:0])
	t.Put(m.Key, string(t.memo))
	if was == t.Now {
		return
	}
	if was != 0 {
		t.Add(store.Op{Kind: store.Delete, Key: record.AgedKey(was, m.Key), Expect: store.AnyRevision})
	}
	t.Add(store.Op{Kind: store.Put, Key: record.AgedKey(t.Now, m.Key), Expect: store.AnyRevision})
}

// ForgetMemo deletes a memo that was found, and its entry by age.
func (t *Txn) ForgetMemo(m *record.Memo) {
	t.Delete(m.Key)
	t.Add(store.Op{Kind: store.Delete, Key: record.AgedKey(m.At, m.Key), Expect: store.AnyRevision})
}

// Memo returns the memo of a key, whose At is 0 if there is none. The commit verifies it.
func (t *Txn) Memo(key string) (record.Memo, error) {
	value, ok, err := t.Get(key)
	if err != nil {
		return record.Memo{}, err
	}
	return record.DecodeMemo(key, value, ok)
}

// Recall returns what of the answer that the request key was given before is still held by the handle, in the order of the
// answer. A record that is not known is assumed not to exist, and the commit verifies that: the first call of a key so needs no
// read of its own, and whatever else it finds, an answer that there is comes first. A shortage is not kept: a repetition asks for
// what is missing.
//
// An address that the handle now holds for another host fails the request: the answer would name a host that has lost the address,
// and another address would be a second one of the handle. Without a handle only the sequence numbers tell whose an address is.
func (t *Txn) Recall(cat *CatalogEntry, m *record.Memo, handle string, owner alloc.Owner) ([]Place, error) {
	value, ok := t.Assume(m.Key)
	was, err := record.DecodeMemo(m.Key, value, ok)
	if err != nil || !ok {
		return nil, err
	}
	if was.Digest == record.Withdrawn {
		return nil, cause.Withdrawn
	}
	if was.Digest != m.Digest {
		return nil, cause.Invalid("Request", "the key was used for a request with other arguments")
	}
	m.At = was.At
	if handle != "" {
		was.Seqs = nil
	}
	held, err := t.HeldAt(cat, was.Ids, was.Seqs, handle)
	for _, h := range held {
		if h.Host != owner {
			al := h.Be.AllocationOf(h.X, handle)
			al.Handle = "" // the error names the host
			return nil, InTheWay(al, cause.Moved)
		}
	}
	return held, err
}
