package ipset

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// answer is what is kept under a request key: the addresses that the first call was given and what it was short of.
type answer struct {
	at        int64 // when, for pruning
	addresses []answered
	short     []Shortage
}

type answered struct {
	prefix netip.Prefix // address with its block's length
	seq    uint64
	until  int64
}

const answerVersion = 1

func (a *answer) encode() string {
	b := binary.AppendVarint([]byte{answerVersion}, a.at)
	b = binary.AppendUvarint(b, uint64(len(a.addresses)))
	for _, d := range a.addresses {
		b = appendBlockID(b, d.prefix)
		b = binary.AppendUvarint(b, d.seq)
		b = binary.AppendVarint(b, d.until)
	}
	b = binary.AppendUvarint(b, uint64(len(a.short)))
	for _, s := range a.short {
		b = appendString(b, s.Pool)
		b = append(b, byte(s.Family), byte(s.Reason))
	}
	return string(b)
}

func decodeAnswer(s string) (*answer, error) {
	r := &reader{s: s}
	a := &answer{}
	if v := r.byte(); v != answerVersion {
		r.fail("version")
	}
	a.at = r.varint()
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		size := uint64(18)
		if r.s != "" && r.s[0] == '4' {
			size = 6
		}
		id := r.bytes(size)
		if r.err != nil {
			break
		}
		// An address is no masked prefix, which is all that parseBlockID would add.
		ip, ok := netip.AddrFromSlice([]byte(id[1 : size-1]))
		d := answered{prefix: netip.PrefixFrom(ip, int(id[size-1])), seq: r.uvarint(), until: r.varint()}
		if !ok || !d.prefix.IsValid() {
			r.fail("address")
		}
		a.addresses = append(a.addresses, d)
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		a.short = append(a.short, Shortage{Pool: r.bytes(r.uvarint()), Family: int(r.byte()), Reason: Reason(r.byte())})
	}
	if r.err != nil || r.s != "" {
		return nil, fmt.Errorf("%w: answer to a request", ErrRecord)
	}
	return a, nil
}

// allocations returns the addresses as they were given to the host and claim of the first call.
func (a *answer) allocations(host Owner, c Claim) (v4, v6 []Allocation) {
	for _, d := range a.addresses {
		al := Allocation{
			Address: d.prefix.Addr(), Block: d.prefix.Masked(), Host: host, Handle: c.Handle, Attributes: c.Attributes,
			Seq: d.seq, Until: unstamp(d.until),
		}
		if al.Address.Is4() {
			v4 = append(v4, al)
		} else {
			v6 = append(v6, al)
		}
	}
	return v4, v6
}

func (a *answer) add(als []Allocation) {
	for _, al := range als {
		a.addresses = append(a.addresses, answered{al.Prefix(), al.Seq, stamp(al.Until)})
	}
}

// answerTo returns the answer that a request key was given before. With ask it is looked for in the store;
// otherwise only if a conflict has shown that there is one: the first call of a key so needs no read of its own.
func (t *txn) answerTo(request string, ask bool) (*answer, error) {
	if request == "" {
		return nil, nil
	}
	key := kindRequest + request
	if s, ok := t.seen[key]; ok {
		return decodeAnswer(s)
	}
	if ask && t.prior[key] == "" {
		recs, err := t.e.store.Get(t.ctx, nil, key)
		if err != nil {
			return nil, err
		}
		t.prior[key] = recs[0].Value
	}
	if s := t.prior[key]; s != "" {
		return decodeAnswer(s)
	}
	return nil, nil
}

// remember writes the answer to a request key, which must not have one yet.
func (t *txn) remember(request string, a *answer) {
	if request == "" {
		return
	}
	key, value := kindRequest+request, a.encode()
	t.seen[key] = value
	t.other = append(t.other,
		store.Op{Kind: store.Put, Key: key, Value: value, Expect: 0},
		store.Op{Kind: store.Put, Key: agedKey(a.at, key), Expect: store.AnyRevision})
}
