package block

import (
	"fmt"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// Code returns what names an owner in keys and in blocks: its kind and its name.
func (o Owner) Code() string { return string(rune('0'+o.Kind)) + o.Name }

// AppendCode appends the code to dst.
func (o Owner) AppendCode(dst []byte) []byte {
	return append(append(dst, '0'+byte(o.Kind)), o.Name...)
}

// nobody is the code of the zero owner: the host of an address that was imported without one.
const nobody = "0"

// OwnerOf is the inverse of [Owner.Code]. It returns an error for what is no owner's and not nobody's.
func OwnerOf(code string) (Owner, error) {
	if code == "" || code == nobody {
		return Owner{}, nil
	}
	o := Owner{OwnerKind(code[0] - '0'), code[1:]}
	return o, o.Check()
}

// HasCode reports whether a list of codes, each ended by NUL, has one.
func HasCode(list, code string) bool {
	for rest := list; rest != ""; {
		var c string
		if c, rest, _ = strings.Cut(rest, "\x00"); c == code {
			return true
		}
	}
	return false
}

// Give makes the block that of an owner from a moment on. The hosts of its addresses stay who they are.
func (b *Block) Give(o Owner, at int64) {
	b.setOwner(o)
	b.claimed = at
}

// Disown leaves the block without owner. The hosts of its addresses stay who they are.
func (b *Block) Disown() { b.setOwner(Owner{}) }

func (b *Block) setOwner(o Owner) {
	if o == b.owner {
		return
	}
	b.unname(o)
	if b.used > 0 && b.owner.Kind != Nobody {
		b.former += b.owner.Code() + "\x00"
	}
	b.owner = o
}

// unname removes an owner from the former ones.
func (b *Block) unname(o Owner) {
	if code := o.Code(); HasCode(b.former, code) {
		b.former = strings.Replace("\x00"+b.former, "\x00"+code+"\x00", "\x00", 1)[1:]
	}
}

// Forget removes an owner from Former if no address is held for it, which only a block with all its addresses loaded can tell.
func (b *Block) Forget(o Owner) {
	if b.absent > 0 || !HasCode(b.former, o.Code()) {
		return
	}
	for _, a := range b.Each() {
		if !a.Cooling && a.IsHeldFor(o) {
			return
		}
	}
	b.unname(o)
}

// HeldFor reports whether an ordinal is held for a host.
func (b *Block) HeldFor(x uint64, host Owner) bool {
	st, a := b.Look(x)
	return st == Held && a.IsHeldFor(host)
}

// maxName bounds names so that every key fits the stores (bbolt: 32 KiB, etcd: far more) with room for what precedes it.
const maxName = 1024

// CheckName refuses what cannot be a part of a key: NUL ends a handle in its index key.
func CheckName(what, name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "it is empty"
	case len(name) > maxName:
		reason = fmt.Sprintf("%d bytes, at most %d", len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		reason = "it holds a NUL byte"
	default:
		return nil
	}
	return failed(ipalloc.Error{Op: "check", Field: what, Reason: reason, Err: ipalloc.ErrInvalid})
}
