package hostlocal

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Attachment is who holds addresses: one interface of one container. Together with the network's name it is the
// key of the CNI specification.
type Attachment struct {
	Container string
	// Interface is empty only in what was imported from the oldest form of host-local's files, which did not record
	// it: such an attachment answers to every interface of its container that has none of its own.
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

// checkName refuses what cannot be a part of a key: a NUL byte ends a name there.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty %s", ErrBadName, what)
	case len(name) > maxName:
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrBadName, what, len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: %s %q holds a NUL byte", ErrBadName, what, name)
	}
	return nil
}

// The kind of a record is the byte after the network's name; see the package comment.
const (
	kindAddress    = 'a'
	kindCursor     = 'c'
	kindHeader     = 'h'
	kindPage       = 'p'
	kindAttachment = 't'
)

// keys makes the keys of one network. Its records lie between prefix and the same with its NUL made 1.
type keys struct{ prefix string }

func newKeys(network string) keys { return keys{"L" + network + "\x00"} }

func (k keys) kind(kind byte) []byte {
	b := make([]byte, 0, len(k.prefix)+64)
	return append(append(b, k.prefix...), kind)
}

func (k keys) header() string { return string(k.kind(kindHeader)) }

func (k keys) attachment(a Attachment) string {
	b := append(k.kind(kindAttachment), a.Container...)
	return string(append(append(b, 0), a.Interface...))
}

func (k keys) cursor(set int) string {
	return string(binary.BigEndian.AppendUint32(k.kind(kindCursor), uint32(set)))
}

func (k keys) address(a netip.Addr) string {
	b := append(k.kind(kindAddress), family(a.Is6()))
	return string(append(b, a.AsSlice()...))
}

func (k keys) page(id pageID) string {
	b := append(k.kind(kindPage), family(id.v6), id.level)
	if !id.v6 {
		return string(binary.BigEndian.AppendUint32(b, uint32(id.index.Lo)))
	}
	b = binary.BigEndian.AppendUint64(b, id.index.Hi)
	return string(binary.BigEndian.AppendUint64(b, id.index.Lo))
}

// all returns the records of one kind; those of all kinds for 0.
func (k keys) all(kind byte) store.Range {
	if kind == 0 {
		return store.Range{From: k.prefix, To: k.prefix[:len(k.prefix)-1] + "\x01"}
	}
	return store.Range{From: k.prefix + string(rune(kind)), To: k.prefix + string(rune(kind+1))}
}

// kindOf returns the kind of a key of the network; 0 if it has none.
func (k keys) kindOf(key string) byte {
	if len(key) == len(k.prefix) {
		return 0
	}
	return key[len(k.prefix)]
}

// rest returns what follows the kind in a key of the network that has one.
func (k keys) rest(key string) string { return key[len(k.prefix)+1:] }

func family(v6 bool) byte {
	if v6 {
		return '6'
	}
	return '4'
}

// parseAttachment is the inverse of keys.attachment.
func (k keys) parseAttachment(key string) (Attachment, error) {
	container, ifname, ok := strings.Cut(k.rest(key), "\x00")
	a := Attachment{container, ifname}
	if !ok || a.check() != nil {
		return Attachment{}, fmt.Errorf("%w: key %q", ErrRecord, key)
	}
	return a, nil
}

// check refuses names that no key can have. An empty interface passes.
func (a Attachment) check() error {
	if err := checkName("container", a.Container); err != nil || a.Interface == "" {
		return err
	}
	return checkName("interface", a.Interface)
}

// parseAddress is the inverse of keys.address.
func (k keys) parseAddress(key string) (netip.Addr, error) {
	a, rest, ok := cutAddr(k.rest(key))
	if !ok || rest != "" {
		return netip.Addr{}, fmt.Errorf("%w: key %q", ErrRecord, key)
	}
	return a, nil
}

// cutAddr reads a family and an address from the front of s.
func cutAddr(s string) (a netip.Addr, rest string, ok bool) {
	n := 0
	switch {
	case len(s) >= 5 && s[0] == '4':
		n = 5
	case len(s) >= 17 && s[0] == '6':
		n = 17
	default:
		return a, s, false
	}
	a, _ = netip.AddrFromSlice([]byte(s[1:n]))
	return a, s[n:], addr.CheckAddr(a) == nil
}

// parsePage is the inverse of keys.page.
func (k keys) parsePage(key string) (id pageID, err error) {
	s := k.rest(key)
	switch {
	case len(s) == 6 && s[0] == '4':
		id.index.Lo = uint64(binary.BigEndian.Uint32([]byte(s[2:])))
	case len(s) == 18 && s[0] == '6':
		id.v6 = true
		id.index = addr.U128{Hi: binary.BigEndian.Uint64([]byte(s[2:])), Lo: binary.BigEndian.Uint64([]byte(s[10:]))}
	default:
		return id, fmt.Errorf("%w: key %q", ErrRecord, key)
	}
	id.level = s[1]
	return id, nil
}
