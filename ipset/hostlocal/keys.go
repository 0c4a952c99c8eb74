package hostlocal

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Attachment holds addresses: one interface of one container. With the network's name
// it is the key of the CNI specification.
type Attachment struct {
	Container string
	// Interface is empty only after an import from the oldest form of host-local's files,
	// which did not record it. Such an attachment matches every interface of its
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

// checkName refuses a name that cannot be part of a key, because a NUL byte ends a name
// there.
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

// check refuses names that cannot be part of a key. An empty interface is valid.
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
	kindUse        = 'u'
)

// keys makes the keys of one network and of a scope in it. All of them are between prefix
// and prefix with its NUL replaced by 1.
type keys struct{ prefix, scope string }

func newKeys(network, scope string) keys { return keys{"L" + network + "\x00", scope} }

// key returns the key of a record of a kind; code writes the rest of the key.
func (k keys) key(kind byte, code func(*wire.Coder)) string {
	c := wire.Write(make([]byte, 0, len(k.prefix)+64))
	c.B = append(append(c.B, k.prefix...), kind)
	code(c)
	return string(c.B)
}

func (k keys) header() string { return k.prefix + string(rune(kindHeader)) + k.scope }

func (k keys) attachment(a Attachment) string { return k.key(kindAttachment, a.codeKey) }

func (k keys) use(a Attachment) string { return k.key(kindUse, a.codeKey) }

func (k keys) address(a netip.Addr) string { return k.key(kindAddress, (&place{a}).code) }

func (k keys) page(id pageID) string { return k.key(kindPage, id.codeKey) }

func (a *Attachment) codeKey(c *wire.Coder) {
	wire.Name(c, &a.Container)
	if wire.Rest(c, &a.Interface); !c.Writes && a.check() != nil {
		c.Fail("attachment")
	}
}

func (id *pageID) codeKey(c *wire.Coder) {
	c.Family(&id.v6)
	wire.Byte(c, &id.Level)
	c.Index(id.v6, &id.Index)
}

// cursorKey identifies a set by its number or, in a scope, by its first address, so
// networks with the same ranges continue each other.
type cursorKey struct {
	set   int
	first place
}

func (k *cursorKey) codeKey(c *wire.Coder) {
	scoped := k.first.IsValid()
	if c.Flags(&scoped); scoped {
		k.set = -1
		k.first.code(c)
		return
	}
	number := addr.U128{Lo: uint64(k.set)}
	c.Index(false, &number)
	k.set = int(number.Lo)
}

// cursor returns the key of a set's cursor.
func (e *Engine) cursor(set int) string {
	k := cursorKey{set: set}
	if e.scope != "" && set < len(e.sets) {
		k.first.Addr = e.sets[set][0].First
	}
	return e.key(kindCursor, k.codeKey)
}

// all returns the records of one kind, or of all kinds for 0.
func (k keys) all(kind byte) store.Range {
	if kind == 0 {
		return store.Range{From: k.prefix, To: k.prefix[:len(k.prefix)-1] + "\x01"}
	}
	return store.Range{From: k.prefix + string(rune(kind)), To: k.prefix + string(rune(kind+1))}
}

// split returns the kind of a key of the network, 0 if it has none, and the rest of the
// key.
func (k keys) split(key string) (kind byte, rest string) {
	if len(key) == len(k.prefix) {
		return 0, ""
	}
	return key[len(k.prefix)], key[len(k.prefix)+1:]
}

// parseAttachment reads a record of an attachment, key and value.
func (k keys) parseAttachment(r store.Record) (a Attachment, h holding, err error) {
	if err := k.parse(r.Key, a.codeKey); err != nil {
		return Attachment{}, h, err
	}
	h, err = decode[holding](r.Key, r.Value)
	return a, h, err
}

// parseCursor reads a record of a cursor, key and value; set is -1 if the key has none.
func (k keys) parseCursor(r store.Record) (set int, a netip.Addr, err error) {
	var key cursorKey
	if err := k.parse(r.Key, key.codeKey); err != nil {
		return 0, a, err
	}
	last, err := decode[place](r.Key, r.Value)
	return key.set, last.Addr, err
}

// parse parses the rest of a key after the kind.
func (k keys) parse(key string, code func(*wire.Coder)) error {
	_, rest := k.split(key)
	c := wire.Read(rest)
	if code(c); c.End() != nil {
		return corrupt(key, "its key: %v", c.Err)
	}
	return nil
}

// toAddr is the inverse of addr.FromAddr.
func toAddr(u addr.U128, v6 bool) netip.Addr {
	if v6 {
		return u.Addr6()
	}
	return u.Addr4()
}
