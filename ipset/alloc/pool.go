package alloc

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/selector"
	"go4.org/netipx"
)

// Pool is a prefix that is divided into blocks. A zero field selects the default that its comment names.
//
// A pool may lie in another one, to any depth. Each address belongs to the smallest pool that contains it, enabled or not, so
// settings and limits of outer pools do not apply to it. A nested prefix is made of whole blocks of the pool around it.
type Pool struct {
	Name   string       `json:"name"` // UTF-8
	Prefix netip.Prefix `json:"prefix"`
	// Note is for people: what the pool is for, and whose it is. UTF-8 of at most 1,024 bytes. If it is empty, a call that changes the pool
	// keeps the present note.
	Note string `json:"note,omitempty"`
	// BlockBits is the prefix length of a block: by default 26 or 122, or the length of Prefix if that is longer. A block may hold
	// up to 2^64 addresses. If it is 0, a call that changes the pool keeps the present size. If it changes, the blocks that exist
	// keep their size and are used like all others. New blocks have the new size, in places that have no block in use.
	BlockBits int `json:"blockBits,omitempty"`
	// Nodes and Namespaces select the owners and namespaces that the pool serves; the zero selector matches all.
	Nodes      selector.Selector `json:"nodes,omitempty"`
	Namespaces selector.Selector `json:"namespaces,omitempty"`
	// Uses are the uses that the pool's addresses may have; Workload and Tunnel by default.
	Uses Use `json:"uses,omitempty"`
	// Disabled stops assignment from the pool. Addresses that are held stay held.
	Disabled bool `json:"disabled,omitempty"`
	// Closed stops every call that assigns, answers with or renews an address of the pool or of a pool in it, or claims a block there:
	// by name and address too, Existing and request keys included. Releases work. An import adds its pools closed, so nothing is
	// served before it is complete. A change of a pool can close it and never opens it: [ipset.Operator.OpenPool] does.
	Closed bool `json:"closed,omitempty"`
	// Manual restricts the pool to calls that name it.
	Manual bool `json:"manual,omitempty"`
	// Order says which address of a block is handed out next: the one that was released first by default, the lowest, or one at
	// random. The block is chosen first: the owner's blocks in address order, then a free one, searched from a place that the
	// owner's name fixes (with Lowest: the first free block of the pool). So Lowest and Random apply to the whole pool only if it is
	// one block. In a pool of several blocks, [From] with the first address of Prefix asks for the lowest of the whole
	// pool. Such a pool can also grow at once, which one that stays a single block cannot, see Engine.UpdatePool.
	// Cost: see ipset.Engine.
	Order Order `json:"order,omitempty"`
	// Seed determines the addresses of a Random order. If it is 0, the call that adds the pool draws it from Options.Rand, so
	// two stores do not hand out the same addresses; a call that changes the pool keeps the present Seed. It is not a secret.
	Seed uint64 `json:"seed,omitempty"`
	// Index lists up to 8 keys of attributes by which Engine.IPsByAttribute finds the addresses of the pool. An assignment writes
	// one small record more for each of these keys that its attributes have. Adding or removing a key affects only later
	// assignments; Operator.Reindex applies it to the addresses already held.
	Index []string `json:"index,omitempty"`
	// Priority puts the pool before those of lower Priority: an address comes from a pool only if no qualifying pool of higher
	// Priority can give one. That holds even if the owner has blocks in the lower one. Among pools of equal Priority the
	// owner's existing blocks come first, then the pools in the order of their names.
	Priority int `json:"priority,omitempty"`
	// Ranges, if any, are the only addresses of the prefix that automatic assignment takes. If all of them lie outside the prefix,
	// as in a part of a split pool without any of the ranges, it takes none. AssignIP assigns every other address.
	Ranges []netipx.IPRange `json:"ranges,omitempty"`
	// MaxBlocksPerHost limits the blocks of this pool that one owner claims; if it is 0, only the limit of the
	// [Config] applies.
	MaxBlocksPerHost int `json:"maxBlocksPerHost,omitempty"`
	// Subnet says that the pool is one subnet of hosts: its network and broadcast addresses, or its subnet-router anycast
	// address for IPv6, are not assigned automatically. It has no effect on pools of one or two addresses.
	Subnet bool `json:"subnet,omitempty"`
	// Cooldown is how long a released address is kept from others.
	Cooldown time.Duration `json:"-"`
	// Draining lists the other sizes that blocks of the pool may have.
	Draining []int `json:"draining,omitempty"`
}

// poolForm is a pool in JSON.
type poolForm Pool

// MarshalJSON writes a pool in readable form: uses by name, a cooldown such as "1h", and no field with its zero value.
func (p Pool) MarshalJSON() ([]byte, error) {
	form := struct {
		poolForm
		Cooldown string `json:"cooldown,omitempty"`
	}{poolForm: poolForm(p)}
	if p.Cooldown != 0 {
		form.Cooldown = strings.Replace(strings.Replace(p.Cooldown.String(), "m0s", "m", 1), "h0m", "h", 1)
	}
	return json.Marshal(form)
}

// UnmarshalJSON reads what MarshalJSON writes. It returns [ipalloc.ErrInvalid] for an impossible pool and for unknown fields.
func (p *Pool) UnmarshalJSON(text []byte) error {
	form := struct {
		poolForm
		Cooldown string `json:"cooldown"`
	}{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&form)
	if err == nil && form.Cooldown != "" {
		form.poolForm.Cooldown, err = time.ParseDuration(form.Cooldown)
	}
	if err != nil {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: "Pool", Reason: err.Error(), Err: ipalloc.ErrInvalid})
	}
	*p = Pool(form.poolForm)
	return nil
}

// Config applies to all pools. The zero value is the default.
type Config struct {
	// Strict forbids borrowing addresses from blocks of other owners.
	Strict bool
	// NoAutoBlocks forbids AutoAssign and AssignIP to claim blocks; it needs Strict.
	NoAutoBlocks bool
	// MaxBlocksPerHost limits the blocks that one owner claims, over all pools; 0 is no limit.
	MaxBlocksPerHost int
}

// PoolChanges are changes of pools and reservations that are made together. Zero fields change nothing.
type PoolChanges struct {
	// Set lists pools to add. A pool whose name exists replaces that one as in Engine.UpdatePool; an equal pool
	// changes nothing.
	Set []Pool
	// Remove names pools to remove. They are removed before those of Set are added, so a pool may get another prefix. Names of no
	// pool are ignored.
	Remove []string
	// IfEmpty refuses to remove a pool with a held address, and takes its empty blocks from their owners. One commit
	// disables the pools, a later one removes them. An interrupted call leaves them disabled and can be repeated. IfEmpty
	// is refused in [store.Together], because others would not see that the pools are disabled.
	IfEmpty bool
	// Unreserve takes ranges out of the reservations: out of those of its By, or out of all if it names none; the rest of a reservation
	// stays. Then Reserve adds reservations. Addresses in use stay in use.
	Reserve, Unreserve []Reservation
}
