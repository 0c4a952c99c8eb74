package record

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// A caller that repeats a request after an unknown outcome needs the first answer, and a sticky handle needs its last addresses.
// Both are memos, with one coder, one index by age, and one sweep that forgets them.

// Memo is the record of the addresses given under a request key, or to a sticky handle. It has no end of its own. A record
// t<kind><time><key> beside each, written in the same commit, lists memos by age, so the cost of forgetting old ones depends only on
// their number.
type Memo struct {
	Key    string // of the record, "" for no memo
	At     int64  // when it was written, 0 if it is not there
	Digest string // of the request's arguments, "" without
	// Ids are the given addresses, each with the prefix length of its block. Seqs are their sequence numbers.
	Ids  []netip.Prefix
	Seqs []uint64
}

const memoVersion = 1

// KindRename begins the key of the memo of a host whose renaming goes in steps; the host's code follows. No request key has a NUL. Its
// digest is the code of the new host.
const KindRename = KindRequest + "rename\x00"

// Withdrawn is the digest of a request that was withdrawn; no arguments have it, because their digests have 16 bytes. The addresses of the
// memo are still to be released.
const Withdrawn = "withdrawn"

// code codes the record, into a memo without ids.
func (m *Memo) code(c *wire.Coder) {
	c.Version(memoVersion)
	wire.Int(c, &m.At)
	wire.String(c, &m.Digest)
	n := len(m.Ids)
	if c.Count(&n, 7); !c.Writes && n > 0 {
		m.Ids, m.Seqs = make([]netip.Prefix, n), make([]uint64, n)
	}
	for i, id := range m.Ids {
		at, bits := id.Addr(), id.Bits()
		c.Addr(&at)
		wire.Byte(c, &bits)
		if wire.Uint(c, &m.Seqs[i]); c.Writes {
			continue
		}
		if m.Ids[i] = netip.PrefixFrom(at, bits); !m.Ids[i].IsValid() {
			c.Fail("address")
		}
	}
}

// Append appends the record.
func (m *Memo) Append(dst []byte) []byte {
	c := wire.Write(dst)
	m.code(c)
	return c.B
}

// DecodeMemo reads the record of a key, if there is one.
func DecodeMemo(key, value string, ok bool) (Memo, error) {
	m := Memo{Key: key}
	if !ok {
		return m, nil
	}
	c := wire.Read(value)
	m.code(c)
	if err := c.End(); err != nil {
		return Memo{}, fmt.Errorf("%w: what was given under a request key or to a sticky handle", err)
	}
	return m, nil
}

// DigestOf returns a digest of the arguments of a request, the addresses that it names and the time since which they are held. It
// tells requests with different arguments apart. It is a digest of how package fmt prints each argument. The strings of lists and maps
// are quoted, because what joins them may be part of one.
func DigestOf(a *alloc.AssignArgs, named []netip.Addr, since time.Time) string {
	call := "auto"
	if a.WithinRules {
		call = "within rules"
	}
	share, namespace, pools, blocks, at := "{0 }", "map[]", "[]", "{0 0 0}", "[]" // of most calls
	if a.Share != (alloc.Share{}) {
		share = fmt.Sprint(a.Share)
	}
	if len(a.Namespace) > 0 {
		namespace = fmt.Sprintf("%q", a.Namespace)
	}
	if len(a.Pools) > 0 {
		pools = fmt.Sprintf("%q", slices.Sorted(slices.Values(a.Pools)))
	}
	if a.Blocks != (alloc.BlockArgs{}) {
		blocks = fmt.Sprint(a.Blocks)
	}
	if len(named) > 0 {
		at = fmt.Sprint(named)
	}
	if !since.IsZero() {
		at += since.UTC().String()
	}
	texts := [...]string{
		call, a.Owner.String(), strconv.Itoa(a.Num4), strconv.Itoa(a.Num6), a.Handle, a.Attributes.String(), share,
		strconv.FormatInt(int64(a.TTL), 10), a.Use.String(), namespace, pools, strconv.FormatBool(a.Selectors), blocks,
		strconv.FormatBool(a.Partial), strconv.FormatBool(a.Sticky), a.Choose.String(), at,
	}
	var room [512]byte
	b := room[:0]
	for _, s := range texts[:] {
		b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return string(sum[:16])
}
