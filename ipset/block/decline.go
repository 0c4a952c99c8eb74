package block

// The attributes of an address that was declined.
const (
	attrReason = "declined"
	attrBy     = "declined by"
)

// Declined returns the handle that declined the address, "" for a holder without one, and the reason that it gave; ok is false for
// an address that was not declined. Such an address is cooling, and its own holder does not get it back before its time.
func (a Allocation) Declined() (handle, reason string, ok bool) {
	if !a.Cooling || a.Handle != "" {
		return "", "", false
	}
	for k, v := range a.Attributes.All() {
		switch k {
		case attrReason:
			reason, ok = v, true
		case attrBy:
			handle = v
		}
	}
	return handle, reason, ok
}

// DeclineAttributes returns the attributes of an address that a handle declines for a reason. It returns [ipalloc.ErrLimit] if the
// reason is too long for attributes.
func DeclineAttributes(handle, reason string) (Attributes, error) {
	m := map[string]string{attrReason: reason}
	if handle != "" {
		m[attrBy] = handle
	}
	return NewAttributes(m)
}

// Decline takes a held ordinal from its holder at the moment now, which is before until. It cools until then, for any handle, with
// attributes from [DeclineAttributes]. If the last cooling ordinal is free later than until, KnowsCooling must hold.
func (b *Block) Decline(x uint64, now, until int64, why Attributes) {
	b.Drop(x, now, until)
	a := b.Change(x)
	a.Handle, a.Active, a.Alternate, a.Indexed = "", why, Attributes{}, 0
}
