package hostlocal

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Values begin with the version of their form. Numbers are uvarints. They carry no
// checksum, because the store has one.
const codecVersion = 1

// header is read by every operation of a network, and every commit names its revision:
//
//	version, epoch, purged, boot (the rest)
//
// An epoch is the time between two starts of the node, as far as they were seen: it
// grows by one when a call brings another boot than the one recorded. An attachment
// records the epoch in which it was made. No attachment is older than epoch purged.
type header struct {
	epoch, purged uint64
	boot          string
}

func (h header) encode() string {
	b := binary.AppendUvarint([]byte{codecVersion}, h.epoch)
	return string(append(binary.AppendUvarint(b, h.purged), h.boot...))
}

func decodeHeader(key, value string) (h header, err error) {
	if value == "" {
		return h, nil
	}
	r := newReader(value)
	h.epoch, h.purged = r.uvarint(), r.uvarint()
	h.boot = r.s
	if r.bad || h.purged > h.epoch || len(h.boot) > maxName {
		return header{}, corrupt(key, "damaged header")
	}
	return h, nil
}

// holding is the content of an attachment's record: version, epoch, length of the
// scope, scope, addresses.
type holding struct {
	epoch     uint64
	scope     string
	addresses []netip.Addr
}

func (h holding) encode() string {
	b := binary.AppendUvarint([]byte{codecVersion}, h.epoch)
	b = append(binary.AppendUvarint(b, uint64(len(h.scope))), h.scope...)
	for _, a := range h.addresses {
		b = append(append(b, family(a.Is6())), a.AsSlice()...)
	}
	return string(b)
}

// decodeHolding reads an attachment's record, which has at least one address and none
// of them twice.
func decodeHolding(key, value string) (h holding, err error) {
	r := newReader(value)
	h.epoch, h.scope = r.uvarint(), r.text()
	for !r.bad && r.s != "" {
		a := r.addr()
		r.bad = r.bad || slices.Contains(h.addresses, a)
		h.addresses = append(h.addresses, a)
	}
	if r.bad || len(h.addresses) == 0 {
		return holding{}, corrupt(key, "damaged attachment")
	}
	return h, nil
}

// encodeHolder encodes the attachment that holds an address: version, length of the
// container's name, the container's name, the interface's name.
func encodeHolder(a Attachment) string {
	b := binary.AppendUvarint([]byte{codecVersion}, uint64(len(a.Container)))
	return string(append(append(b, a.Container...), a.Interface...))
}

func decodeHolder(key, value string) (a Attachment, err error) {
	r := newReader(value)
	if a = (Attachment{r.text(), r.s}); r.bad || a.check() != nil {
		return Attachment{}, corrupt(key, "damaged holder")
	}
	return a, nil
}

// encodeCursor encodes the address that a set gave last.
func encodeCursor(a netip.Addr) string {
	return string(append([]byte{codecVersion, family(a.Is6())}, a.AsSlice()...))
}

func decodeCursor(key, value string) (netip.Addr, error) {
	if value == "" {
		return netip.Addr{}, nil
	}
	r := newReader(value)
	a := r.addr()
	if r.bad || r.s != "" {
		return netip.Addr{}, corrupt(key, "damaged cursor")
	}
	return a, nil
}

// encodeWord encodes a page; one that is all clear has no record.
func encodeWord(w uint64) string {
	if w == 0 {
		return ""
	}
	return string(binary.BigEndian.AppendUint64([]byte{codecVersion}, w))
}

func decodeWord(key, value string) (uint64, error) {
	switch {
	case value == "":
		return 0, nil
	case len(value) != 9 || value[0] != codecVersion:
		return 0, corrupt(key, "damaged page")
	}
	return binary.BigEndian.Uint64([]byte(value[1:])), nil
}

// reader takes values off the front of a string; bad says that something was missing
// or wrong.
type reader struct {
	s   string
	bad bool
}

// newReader reads the version.
func newReader(value string) *reader {
	if value == "" || value[0] != codecVersion {
		return &reader{bad: true}
	}
	return &reader{s: value[1:]}
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint([]byte(r.s[:min(len(r.s), binary.MaxVarintLen64)]))
	if n <= 0 {
		r.bad, r.s = true, ""
		return 0
	}
	r.s = r.s[n:]
	return v
}

// text reads a length and as many bytes.
func (r *reader) text() (s string) {
	n := r.uvarint()
	if r.bad = r.bad || n > uint64(len(r.s)); !r.bad {
		s, r.s = r.s[:n], r.s[n:]
	}
	return s
}

// addr reads a family and an address.
func (r *reader) addr() (a netip.Addr) {
	n := 0
	switch {
	case len(r.s) >= 5 && r.s[0] == '4':
		n = 5
	case len(r.s) >= 17 && r.s[0] == '6':
		n = 17
	default:
		r.bad = true
		return a
	}
	a, _ = netip.AddrFromSlice([]byte(r.s[1:n]))
	r.s = r.s[n:]
	r.bad = r.bad || addr.CheckAddr(a) != nil
	return a
}
