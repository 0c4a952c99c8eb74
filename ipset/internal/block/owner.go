package block

import (
	"strings"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// OwnerCode returns the code of an owner in keys and blocks: its kind and its name.
func OwnerCode(o alloc.Owner) string { return string(rune('0'+o.Kind)) + o.Name }

// nobody is the code of the zero owner: the host of an address that was imported without one.
const nobody = "0"

// OwnerOf is the inverse of [OwnerCode]. It returns an error unless the code names an owner or nobody.
func OwnerOf(code string) (alloc.Owner, error) {
	if code == "" || code == nobody {
		return alloc.Owner{}, nil
	}
	o := alloc.Owner{Kind: alloc.OwnerKind(code[0] - '0'), Name: code[1:]}
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

// Give gives the block to an owner from a moment on. The hosts of its addresses stay the same.
func (b *Block) Give(o alloc.Owner, at int64) {
	b.setOwner(o)
	b.claimed = at
}

// Disown leaves the block without owner. The hosts of its addresses stay the same.
func (b *Block) Disown() { b.setOwner(alloc.Owner{}) }

func (b *Block) setOwner(o alloc.Owner) {
	if o == b.owner {
		return
	}
	b.unname(o)
	if b.used > 0 && b.owner.Kind != alloc.Nobody {
		b.former += OwnerCode(b.owner) + "\x00"
	}
	b.owner = o
}

// unname removes an owner from the former ones.
func (b *Block) unname(o alloc.Owner) {
	if code := OwnerCode(o); HasCode(b.former, code) {
		b.former = strings.Replace("\x00"+b.former, "\x00"+code+"\x00", "\x00", 1)[1:]
	}
}

// Forget removes an owner from Former if no address is held for it, which only a block with all its addresses loaded can tell.
func (b *Block) Forget(o alloc.Owner) {
	if b.absent > 0 || !HasCode(b.former, OwnerCode(o)) {
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
func (b *Block) HeldFor(x uint64, host alloc.Owner) bool {
	st, a := b.Look(x)
	return st == Held && a.IsHeldFor(host)
}
