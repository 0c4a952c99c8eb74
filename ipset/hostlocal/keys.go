package hostlocal

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Attachment holds addresses: one interface of one container. With the network's name
// it is the key of the CNI specification.
type Attachment struct {
	Container string
	// Interface is empty only in an import from the oldest form of host-local's files,
	// which did not record it. Such an attachment answers to every interface of its
	// container.
	Interface string
}

// String returns both names, joined by a slash.
func (a Attachment) String() string { return a.Container + "/" + a.Interface }

// Compare orders attachments by container, then by interface.
func (a Attachment) Compare(b Attachment) int {
	if c := strings.Compare(a.Container, b.Container); c != 0 {
		return c
	}
	return strings.Compare(a.Interface, b.Interface)
}

// maxName bounds names so that a key fits every store.
const maxName = 1024

// checkName refuses a name that cannot be part of a key, where a NUL byte ends a name.
func checkName(field, name string) error {
	switch {
	case name == "":
		return fault(ipalloc.ErrInvalid, field, "empty name")
	case len(name) > maxName:
		return fault(ipalloc.ErrInvalid, field, fmt.Sprintf("name of %d bytes, at most %d", len(name), maxName))
	case strings.IndexByte(name, 0) >= 0:
		return fault(ipalloc.ErrInvalid, field, fmt.Sprintf("name %q holds a NUL byte", name))
	}
	return nil
}

// check refuses names that no key can have. An empty interface passes.
func (a Attachment) check() error {
	if err := checkName("Container", a.Container); err != nil || a.Interface == "" {
		return err
	}
	return checkName("Interface", a.Interface)
}

// The kind of a record is the byte after the network's name; see the package comment.
const (
	kindAddress    = 'a'
	kindCursor     = 'c'
	kindHeader     = 'h'
	kindPage       = 'p'
	kindAttachment = 't'
)

// keys makes the keys of one network and of a scope in it. Its records lie between prefix
// and the same with its NUL made 1.
type keys struct{ prefix, scope string }

func newKeys(network, scope string) keys { return keys{"L" + network + "\x00", scope} }

func (k keys) kind(kind byte) []byte {
	b := make([]byte, 0, len(k.prefix)+64)
	return append(append(b, k.prefix...), kind)
}

func (k keys) header() string { return string(append(k.kind(kindHeader), k.scope...)) }

func (k keys) attachment(a Attachment) string {
	b := append(k.kind(kindAttachment), a.Container...)
	return string(append(append(b, 0), a.Interface...))
}

// cursor returns the key of a set's cursor. In a scope the set's first address stands for
// its number, so that networks with the same ranges continue each other.
func (e *Engine) cursor(set int) string {
	if e.scope != "" && set < len(e.sets) {
		return string(append(e.kind(kindCursor), encodeCursor(e.sets[set][0].Start)...))
	}
	return string(binary.BigEndian.AppendUint32(e.kind(kindCursor), uint32(set)))
}

func (k keys) address(a netip.Addr) string {
	b := append(k.kind(kindAddress), family(a.Is6()))
	return string(append(b, a.AsSlice()...))
}

func (k keys) page(id pageID) string {
	b := append(k.kind(kindPage), family(id.v6), id.Level)
	if !id.v6 {
		return string(binary.BigEndian.AppendUint32(b, uint32(id.Index.Lo)))
	}
	b = binary.BigEndian.AppendUint64(b, id.Index.Hi)
	return string(binary.BigEndian.AppendUint64(b, id.Index.Lo))
}

func family(v6 bool) byte {
	if v6 {
		return '6'
	}
	return '4'
}

// all returns the records of one kind, or of all kinds for 0.
func (k keys) all(kind byte) store.Range {
	if kind == 0 {
		return store.Range{From: k.prefix, To: k.prefix[:len(k.prefix)-1] + "\x01"}
	}
	return store.Range{From: k.prefix + string(rune(kind)), To: k.prefix + string(rune(kind+1))}
}

// split returns the kind of a key of the network, 0 if it has none, and what follows.
func (k keys) split(key string) (kind byte, rest string) {
	if len(key) == len(k.prefix) {
		return 0, ""
	}
	return key[len(k.prefix)], key[len(k.prefix)+1:]
}

// parseAttachment reads a record of an attachment, key and value.
func (k keys) parseAttachment(r store.Record) (a Attachment, h holding, err error) {
	_, rest := k.split(r.Key)
	container, ifname, ok := strings.Cut(rest, "\x00")
	if a = (Attachment{container, ifname}); !ok || a.check() != nil {
		return Attachment{}, h, corrupt(r.Key, "not the key of an attachment")
	}
	h, err = decodeHolding(r.Key, r.Value)
	return a, h, err
}

// parseCursor reads a record of a cursor, key and value; set is -1 if the key has none.
func (k keys) parseCursor(r store.Record) (set int, a netip.Addr, err error) {
	_, rest := k.split(r.Key)
	if set = -1; len(rest) == 4 {
		set = int(binary.BigEndian.Uint32([]byte(rest)))
	} else if _, bad := decodeCursor(r.Key, rest); bad != nil || rest == "" {
		return 0, a, corrupt(r.Key, "not the key of a cursor")
	}
	a, err = decodeCursor(r.Key, r.Value)
	return set, a, err
}

// toAddr is the inverse of addr.FromAddr.
func toAddr(u addr.U128, v6 bool) netip.Addr {
	if v6 {
		return u.Addr6()
	}
	return u.Addr4()
}
