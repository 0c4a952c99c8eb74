package hostlocal

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// Values begin with the version of their form. Numbers are uvarints. They carry no
// checksum, because the store has one.
//
// forms are two digits: the version that is written, and the newest version that is read.
// A release reads a changed form one release before a later one writes it, so a program
// can go back by one release. The linker sets another value for the test of that.
var forms = "11"

func writtenForm() byte { return forms[0] - '0' }

// coded is a pointer to a value with one function for both directions of its record.
type coded[T any] interface {
	*T
	code(c *wire.Coder)
}

func encode[T any, P coded[T]](v T) string {
	c := wire.Write(nil)
	c.Version(writtenForm())
	P(&v).code(c)
	return string(c.B)
}

// decode returns the content of a record, the zero T with an error: ErrVersion for another version, else ErrCorrupt.
func decode[T any, P coded[T]](key, value string) (v T, err error) {
	if err := checkVersion(key, value); err != nil {
		return v, err
	}
	c := wire.Read(value)
	c.Byte()
	if P(&v).code(c); c.End() != nil {
		var none T
		return none, corrupt(key, "damaged: %v", c.Err)
	}
	return v, nil
}

// checkVersion refuses a record in an unknown form. The first byte is certainly the
// version, because the store has a checksum of the record.
func checkVersion(key, value string) error {
	newest := forms[1] - '0'
	if value == "" || value[0] >= 1 && value[0] <= newest {
		return nil
	}
	return fault(ipalloc.ErrVersion, "", fmt.Sprintf("record %q has version %d, and this program reads version %d: use the program that wrote it", key, value[0], newest))
}

// inWrittenForm returns a derived record as this program writes it.
func inWrittenForm(kind byte, key, value string) (string, error) {
	if value != "" && value[0] == writtenForm() {
		return value, nil // damage shows in the comparison
	}
	if kind == kindPage {
		w, err := decode[word](key, value)
		return encode(w), err
	}
	if kind == kindUse {
		u, err := decode[use](key, value)
		return encode(u), err
	}
	who, err := decode[Attachment](key, value)
	return encode(who), err
}

// Every operation of a network reads header, and every commit names its revision. It is
// written before any address is allocated, in a commit of its own, so no commit that
// grants expects it to be absent. Remove deletes it, and a lost commit with that
// expectation could then still be made.
//
// An epoch is the time between two starts of the node that the engines have seen. It
// grows by one when a call has another boot than the recorded one. An attachment records
// the epoch of its creation. No attachment is older than epoch purged.
type header struct {
	epoch, purged uint64
	boot          string
	// closing is set by Remove. The next commit that grants clears it, and so changes the revision that Remove expects.
	closing bool
}

func (h *header) code(c *wire.Coder) {
	c.Flags(&h.closing)
	wire.Uint(c, &h.epoch)
	wire.Uint(c, &h.purged)
	if wire.Rest(c, &h.boot); h.purged > h.epoch || len(h.boot) > maxName {
		c.Fail("epoch or boot")
	}
}

// holding is the content of an attachment's record: at least one address, and none twice.
// The holding of a key has user and sequence too; added is then when the key was last
// used, or came out of use.
type holding struct {
	epoch     uint64
	added     int64 // nanoseconds since 1970
	scope     string
	sequence  uint64 // how often the key came into use; 0 for an attachment
	user      Attachment
	addresses []netip.Addr
}

func (h *holding) code(c *wire.Coder) {
	wire.Uint(c, &h.epoch)
	wire.Int(c, &h.added)
	wire.String(c, &h.scope)
	if wire.Uint(c, &h.sequence); h.sequence > 0 {
		wire.String(c, &h.user.Container)
		wire.String(c, &h.user.Interface)
	}
	wire.List(c, &h.addresses, 1, func(c *wire.Coder, a *netip.Addr) { c.Addr(a) })
	if c.Writes {
		return
	}
	sorted := slices.SortedFunc(slices.Values(h.addresses), netip.Addr.Compare)
	if len(sorted) == 0 || len(slices.Compact(sorted)) < len(h.addresses) {
		c.Fail("no address, or one twice")
	}
}

// code encodes or decodes the attachment that holds an address.
func (a *Attachment) code(c *wire.Coder) {
	wire.String(c, &a.Container)
	if wire.Rest(c, &a.Interface); !c.Writes && a.check() != nil {
		c.Fail("attachment")
	}
}

// use is the key whose addresses an attachment uses.
type use struct {
	key      string
	sequence uint64
}

func (u *use) code(c *wire.Coder) {
	wire.Uint(c, &u.sequence)
	if wire.Rest(c, &u.key); !c.Writes && (u.sequence == 0 || checkKey(u.key) != nil) {
		c.Fail("key")
	}
}

// place is an address: as a value the last address that a set allocated, in a key the
// held address.
type place struct{ netip.Addr }

func (p *place) code(c *wire.Coder) { c.Addr(&p.Addr) }

// word is a page. A page that is all clear has no record.
type word uint64

func (w *word) code(c *wire.Coder) { wire.Word(c, (*uint64)(w)) }

func encodeWord(w uint64) string {
	if w == 0 {
		return ""
	}
	return encode(word(w))
}
