package hostlocal

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// Values begin with the version of their form. Numbers are uvarints.
const codecVersion = 1

// header is the one record that all operations of a network rely upon.
//
//	version, epoch, purged, boot (the rest)
//
// An epoch is the time between two reboots of the node, as far as it was seen: it grows by one when a call comes with
// another boot id than the one recorded. Attachments record the epoch they were made in. purged is the epoch before
// which no attachment is left.
type header struct {
	epoch, purged uint64
	boot          string
}

func (h header) encode() string {
	b := binary.AppendUvarint([]byte{codecVersion}, h.epoch)
	return string(append(binary.AppendUvarint(b, h.purged), h.boot...))
}

func decodeHeader(s string) (h header, err error) {
	if s == "" {
		return h, nil
	}
	r := reader{s: s}
	r.version()
	h.epoch, h.purged = r.uvarint(), r.uvarint()
	h.boot = r.s
	if r.bad || h.purged > h.epoch || len(h.boot) > maxName {
		return header{}, fmt.Errorf("%w: header", ErrRecord)
	}
	return h, nil
}

// holding is the content of an attachment's record: version, epoch, addresses. What lies between them is told by
// each address's own form.
type holding struct {
	epoch     uint64
	addresses []netip.Addr
}

func (h holding) encode() string {
	b := binary.AppendUvarint([]byte{codecVersion}, h.epoch)
	for _, a := range h.addresses {
		b = append(append(b, family(a.Is6())), a.AsSlice()...)
	}
	return string(b)
}

// decodeHolding reads an attachment's record. It has at least one address and none of them twice.
func decodeHolding(s string) (h holding, err error) {
	r := reader{s: s}
	r.version()
	h.epoch = r.uvarint()
	for !r.bad && r.s != "" {
		a := r.addr()
		r.bad = r.bad || slices.Contains(h.addresses, a)
		h.addresses = append(h.addresses, a)
	}
	if r.bad || len(h.addresses) == 0 {
		return holding{}, fmt.Errorf("%w: attachment", ErrRecord)
	}
	return h, nil
}

// encodeHolder codes the attachment that an address's record points to: version, length of the container's name, it,
// and the interface's.
func encodeHolder(a Attachment) string {
	b := binary.AppendUvarint([]byte{codecVersion}, uint64(len(a.Container)))
	return string(append(append(b, a.Container...), a.Interface...))
}

func decodeHolder(s string) (a Attachment, err error) {
	r := reader{s: s}
	r.version()
	n := r.uvarint()
	if !r.bad && n <= uint64(len(r.s)) {
		a = Attachment{r.s[:n], r.s[n:]}
	}
	if a.check() != nil {
		return Attachment{}, fmt.Errorf("%w: address", ErrRecord)
	}
	return a, nil
}

// encodeCursor codes the address that was last picked from a set.
func encodeCursor(a netip.Addr) string {
	return string(append([]byte{codecVersion, family(a.Is6())}, a.AsSlice()...))
}

func decodeCursor(s string) (netip.Addr, error) {
	if s == "" {
		return netip.Addr{}, nil
	}
	r := reader{s: s}
	r.version()
	a := r.addr()
	if r.bad || r.s != "" {
		return netip.Addr{}, fmt.Errorf("%w: cursor", ErrRecord)
	}
	return a, nil
}

// encodeWord codes the content of a page.
func encodeWord(w uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{codecVersion}, w))
}

func decodeWord(s string) (uint64, error) {
	switch {
	case s == "":
		return 0, nil
	case len(s) != 9 || s[0] != codecVersion:
		return 0, fmt.Errorf("%w: page", ErrRecord)
	}
	return binary.BigEndian.Uint64([]byte(s[1:])), nil
}

// reader takes values off the front of a string; bad says that something was missing or wrong.
type reader struct {
	s   string
	bad bool
}

func (r *reader) version() {
	if r.s == "" || r.s[0] != codecVersion {
		r.bad, r.s = true, ""
		return
	}
	r.s = r.s[1:]
}

func (r *reader) uvarint() uint64 {
	n := min(len(r.s), binary.MaxVarintLen64)
	v, n := binary.Uvarint([]byte(r.s[:n]))
	if n <= 0 {
		r.bad, r.s = true, ""
		return 0
	}
	r.s = r.s[n:]
	return v
}

func (r *reader) addr() netip.Addr {
	a, rest, ok := cutAddr(r.s)
	r.s = rest
	r.bad = r.bad || !ok
	return a
}
