package hostlocal

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// Values begin with the version of their form. Numbers are uvarints. They carry no
// checksum, because the store has one. A form that changes gets another version.
const codecVersion = 2

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
	r := read(value)
	h.epoch, h.purged = r.Uvarint(), r.Uvarint()
	h.boot = r.S
	if r.Err != nil || h.purged > h.epoch || len(h.boot) > maxName {
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
	b = wire.AppendString(b, h.scope)
	for _, a := range h.addresses {
		b = appendAddr(b, a)
	}
	return string(b)
}

// decodeHolding reads an attachment's record, which has at least one address and none
// of them twice.
func decodeHolding(key, value string) (h holding, err error) {
	r := read(value)
	h.epoch, h.scope = r.Uvarint(), r.Bytes(r.Uvarint())
	for r.S != "" {
		a := readAddr(r)
		if slices.Contains(h.addresses, a) {
			r.Fail("address twice")
		}
		h.addresses = append(h.addresses, a)
	}
	if r.Err != nil || len(h.addresses) == 0 {
		return holding{}, corrupt(key, "damaged attachment")
	}
	return h, nil
}

// encodeHolder encodes the attachment that holds an address: version, length of the
// container's name, the container's name, the interface's name.
func encodeHolder(a Attachment) string {
	return string(append(wire.AppendString([]byte{codecVersion}, a.Container), a.Interface...))
}

func decodeHolder(key, value string) (a Attachment, err error) {
	r := read(value)
	a.Container = r.Bytes(r.Uvarint())
	if a.Interface = r.S; r.Err != nil || a.check() != nil {
		return Attachment{}, corrupt(key, "damaged holder")
	}
	return a, nil
}

// encodeCursor encodes the address that a set gave last.
func encodeCursor(a netip.Addr) string {
	return string(appendAddr([]byte{codecVersion}, a))
}

func decodeCursor(key, value string) (netip.Addr, error) {
	if value == "" {
		return netip.Addr{}, nil
	}
	r := read(value)
	a := readAddr(r)
	if r.Err != nil || r.S != "" {
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

// read begins to read a value: it takes the version off.
func read(value string) *wire.Reader {
	r := &wire.Reader{S: value}
	if r.Byte() != codecVersion {
		r.Fail("version")
	}
	return r
}

// appendAddr appends a family and an address.
func appendAddr(b []byte, a netip.Addr) []byte {
	return wire.AppendAddr(append(b, family(a.Is6())), a)
}

func readAddr(r *wire.Reader) netip.Addr {
	n := uint64(4)
	switch r.Byte() {
	case '4':
	case '6':
		n = 16
	default:
		r.Fail("family")
	}
	a, ok := netip.AddrFromSlice([]byte(r.Bytes(n)))
	if !ok || addr.CheckAddr(a) != nil {
		r.Fail("address")
	}
	return a
}
