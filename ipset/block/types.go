package block

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// OwnerKind says whether an owner is a machine.
type OwnerKind uint8

const (
	// Nobody is the kind of the zero [Owner]. A block with it is an orphan.
	Nobody OwnerKind = iota
	// Host is a machine.
	Host
	// Virtual is an owner that is not a machine, such as a load balancer's controller.
	Virtual
)

// Owner identifies the owner of a block, or the host that an address is held for. The zero value is no owner. Owners are
// comparable.
type Owner struct {
	Kind OwnerKind
	Name string
}

// HostOwner returns the owner that stands for the machine of that name.
func HostOwner(name string) Owner { return Owner{Host, name} }

// ParseOwner reads what [Owner.String] writes: "host:a", "virtual:b", or "" for no owner. Anything else is [ipalloc.ErrInvalid].
func ParseOwner(s string) (Owner, error) {
	if s == "" {
		return Owner{}, nil
	}
	kind, name, ok := strings.Cut(s, ":")
	if ok && name != "" && kind == "host" {
		return Owner{Host, name}, nil
	}
	if ok && name != "" && kind == "virtual" {
		return Owner{Virtual, name}, nil
	}
	return Owner{}, failed(ipalloc.Error{Op: "parse", Field: "owner", Text: s, Err: ipalloc.ErrInvalid})
}

// String returns "host:name", "virtual:name" or "".
func (o Owner) String() string {
	switch o.Kind {
	case Host:
		return "host:" + o.Name
	case Virtual:
		return "virtual:" + o.Name
	}
	return ""
}

// Check refuses an owner that cannot own.
func (o Owner) Check() error {
	if o.Kind != Host && o.Kind != Virtual {
		return failed(ipalloc.Error{Op: "check", Field: "Owner", Reason: fmt.Sprintf("of kind %d", o.Kind), Err: ipalloc.ErrInvalid})
	}
	return CheckName("owner", o.Name)
}

// maxAttributes is the largest size of the attributes of one address, coded.
const maxAttributes = 64 << 10

// Attributes is an immutable set of keys and values that is kept with an address. The zero value is the empty set. Sets with
// the same content are equal by ==.
type Attributes struct {
	// code is uvarint length and bytes of key and value alternating, keys ascending.
	code string
}

// NewAttributes returns the attributes in m. It returns ipalloc.ErrLimit if they come to more than 64 KiB.
func NewAttributes(m map[string]string) (Attributes, error) {
	if len(m) == 0 {
		return Attributes{}, nil
	}
	keys := make([]string, 0, len(m))
	size := 0
	for k, v := range m {
		keys = append(keys, k)
		size += len(k) + len(v) + 2
	}
	if size > maxAttributes {
		return Attributes{}, failed(ipalloc.Error{Op: "check", Field: "attributes", Reason: fmt.Sprintf("%d bytes, at most %d", size, maxAttributes), Err: ipalloc.ErrLimit})
	}
	slices.Sort(keys)
	b := make([]byte, 0, size)
	for _, k := range keys {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
		b = binary.AppendUvarint(b, uint64(len(m[k])))
		b = append(b, m[k]...)
	}
	if len(b) > maxAttributes {
		return Attributes{}, failed(ipalloc.Error{Op: "check", Field: "attributes", Reason: fmt.Sprintf("%d bytes, at most %d", len(b), maxAttributes), Err: ipalloc.ErrLimit})
	}
	return Attributes{string(b)}, nil
}

// All yields keys and values, keys ascending.
func (a Attributes) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for r := (wire.Reader{S: a.code}); r.S != ""; {
			k := r.Bytes(r.Uvarint())
			if v := r.Bytes(r.Uvarint()); !yield(k, v) {
				return
			}
		}
	}
}

// Mark returns which of the attributes have one of the keys and a value that an index can list: bit i stands for the i-th, keys
// ascending. A value of more than 1,024 bytes or with a NUL byte is left out, and so is what follows the first 64 attributes.
func (a Attributes) Mark(keys []string) (marks uint64) {
	if len(keys) == 0 || a.code == "" {
		return 0
	}
	i := 0
	for k, v := range a.All() {
		if i < 64 && slices.Contains(keys, k) && canIndex(k, v) {
			marks |= 1 << i
		}
		i++
	}
	return marks
}

// Marked yields the attributes that [Attributes.Mark] has marked.
func (a Attributes) Marked(marks uint64) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if marks == 0 {
			return
		}
		for k, v := range a.All() {
			if marks&1 != 0 && !yield(k, v) {
				return
			}
			marks >>= 1
		}
	}
}

// canIndex reports whether a key and a value can be parts of the key of an index record.
func canIndex(k, v string) bool {
	return k != "" && len(k) <= maxName && len(v) <= maxName && strings.IndexByte(k, 0) < 0 && strings.IndexByte(v, 0) < 0
}

// mayIndex reports whether Mark can have returned marks.
func (a Attributes) mayIndex(marks uint64) bool {
	n := 0
	for k, v := range a.Marked(marks) {
		if !canIndex(k, v) {
			return false
		}
		n++
	}
	return n == bits.OnesCount64(marks)
}

// Map returns the attributes as a new map, nil if there are none.
func (a Attributes) Map() map[string]string {
	if a.code == "" {
		return nil
	}
	m := make(map[string]string)
	for k, v := range a.All() {
		m[k] = v
	}
	return m
}

// valid reports whether the code is one that NewAttributes writes.
func (a Attributes) valid() bool {
	r, last, first := wire.Reader{S: a.code}, "", true
	for r.S != "" {
		k := r.Bytes(r.Uvarint())
		r.Bytes(r.Uvarint())
		if r.Err != nil || !first && k <= last {
			return false
		}
		last, first = k, false
	}
	return len(a.code) <= maxAttributes
}

// Allocation is one address that is held, or that is cooling. Of an address with several holders it is what one of them has:
// queries by address return that of the first, queries by handle or host that of the holder asked for.
type Allocation struct {
	Address netip.Addr
	// Block is the prefix of the block that the address is in.
	Block netip.Prefix
	// Host is the host that the address is held for. If that is not the owner of the block, the address is borrowed. It is
	// the zero Owner if an import did not name one.
	Host   Owner
	Handle string
	// Attributes are those of the active owner; Alternate those of the owner that may take over.
	Attributes Attributes
	Alternate  Attributes
	// Seq is the sequence number of the allocation; no other allocation of this address ever has it.
	Seq uint64
	// Since is when the holder got the address; for a cooling address it is when that began to cool. It is to the second, and zero if
	// it is not known, as of an import that does not say.
	Since time.Time
	// Until is the end of the lease, zero without one. For a cooling address it is when the address can be assigned again.
	Until   time.Time
	Cooling bool
	shared  string // coded Share and all holders, this one among them; "" for an address that allows no others
}

// Share returns what the first holder allows, the zero Share if it allows no others.
func (a Allocation) Share() Share {
	s, _ := readShare(a.shared)
	return s
}

// Holders yields the allocation of every holder of the address, the first one first. It is this one alone unless the address
// is shared.
func (a Allocation) Holders() iter.Seq[Allocation] {
	return func(yield func(Allocation) bool) {
		_, rest := readShare(a.shared)
		if rest == "" {
			yield(a)
			return
		}
		for h := range holdersIn(rest) {
			a.Host, a.Handle, a.Attributes, a.Alternate, a.Seq, a.Until = h.Host, h.Handle, h.Active, h.Alternate, h.Seq, Unstamp(h.Until)
			a.Since = h.since()
			if !yield(a) {
				return
			}
		}
	}
}

// Holder names who has the address: the handle, or the host if it has none.
func (a Allocation) Holder() string {
	if a.Handle != "" || a.Host.Kind == Nobody {
		return a.Handle
	}
	return a.Host.String()
}

// Prefix returns the address with its block's prefix length, unmasked, the form an interface is configured with.
func (a Allocation) Prefix() netip.Prefix { return netip.PrefixFrom(a.Address, a.Block.Bits()) }

// Stamp turns a time into nanoseconds since 1970; the zero time is 0. Records keep times above 0 only: an earlier time counts as the
// first nanosecond of 1970, and one that does not fit into 64 bits as the last that does.
func Stamp(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case !t.After(time.Unix(0, 1)):
		return 1
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Unstamp turns nanoseconds since 1970 into a UTC time; 0 is the zero time.
func Unstamp(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// Use is what an address is for; a set of bits in a pool.
type Use uint8

const (
	// Workload addresses go to pods, containers and virtual machines.
	Workload Use = 1 << iota
	// Tunnel addresses go to the tunnel devices of hosts.
	Tunnel
	// LoadBalancer addresses go to services.
	LoadBalancer
)
