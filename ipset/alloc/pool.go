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

// Pool is a prefix that the engine divides into blocks. A zero field selects the default
// given in its comment.
//
// A pool may be inside another pool, to any depth. Each address belongs to the smallest
// pool that contains it, enabled or not, so settings and limits of outer pools do not
// apply to it. A nested prefix must consist of whole blocks of the outer pool.
type Pool struct {
	Name   string       `json:"name"` // UTF-8
	Prefix netip.Prefix `json:"prefix"`
	// Note is a text for operators, such as the pool's purpose and owner: UTF-8 of at most
	// 1,024 bytes. If it is empty, a call that changes the pool keeps the present note.
	Note string `json:"note,omitempty"`
	// BlockBits is the prefix length of a block. The default is 26 or 122, or the length
	// of Prefix if that is longer. A block has at most 2^64 addresses. In a call that
	// changes the pool, 0 keeps the present size. If the size changes, existing blocks
	// keep theirs and are used like all others. New blocks have the new size, in places
	// without a block in use.
	BlockBits int `json:"blockBits,omitempty"`
	// Nodes and Namespaces select the owners and namespaces that the pool serves; the zero selector matches all.
	Nodes      selector.Selector `json:"nodes,omitempty"`
	Namespaces selector.Selector `json:"namespaces,omitempty"`
	// Uses is the set of uses that the pool's addresses may have; the default is Workload
	// and Tunnel.
	Uses Use `json:"uses,omitempty"`
	// Disabled stops assignment from the pool. Held addresses stay held.
	Disabled bool `json:"disabled,omitempty"`
	// Closed stops every call that assigns, returns or renews an address of the pool or
	// of a nested pool, or claims a block there. It also stops calls that name the pool
	// or the address, and calls with Existing or a request key. Releases still work. An
	// import adds its pools closed, so nothing is served before it is complete. A change
	// of a pool can close it but not open it; use [ipset.Operator.OpenPool] for that.
	Closed bool `json:"closed,omitempty"`
	// Manual restricts the pool to calls that name it.
	Manual bool `json:"manual,omitempty"`
	// Order selects the next address of a block: first released first assigned (the
	// default), the lowest, or a random one. The block is chosen first. The owner's
	// blocks come first, in address order, then a free block. The search for a free block
	// starts at a position derived from the owner's name, or with Lowest at the first
	// block of the pool. Lowest and Random therefore apply to the whole pool only if it
	// is one block. If a pool has more than one block, use [From] with the first address
	// of Prefix to get the lowest of the whole pool. Such a pool can also grow at once,
	// unlike a pool that stays a single block, see Engine.UpdatePool. Cost: see
	// ipset.Engine.
	Order Order `json:"order,omitempty"`
	// Seed determines the addresses of a Random order. If it is 0, the call that adds the
	// pool draws it from Options.Rand, so two stores do not assign the same addresses. A
	// call that changes the pool keeps the present Seed. It is not a secret.
	Seed uint64 `json:"seed,omitempty"`
	// Index lists up to 8 keys of attributes. Engine.IPsByAttribute finds the addresses
	// of the pool by these keys. An assignment writes one more small record for each of
	// these keys among its attributes. Adding or removing a key affects only later
	// assignments; Operator.Reindex applies it to the addresses already held.
	Index []string `json:"index,omitempty"`
	// Priority puts the pool before pools of lower Priority: a pool serves a call only if
	// no qualifying pool of higher Priority has an address. That holds even if the owner
	// has blocks in the pool of lower Priority. Among pools of equal Priority the owner's
	// existing blocks come first. Then the pools follow as the call names them, or else
	// in the order of their names.
	Priority int `json:"priority,omitempty"`
	// Ranges, if any, are the only addresses of the prefix that automatic assignment
	// uses. If all Ranges are outside the prefix, automatic assignment uses no address;
	// the part of a split pool that contains none of the ranges is such a pool. AssignIP
	// can assign all other addresses.
	Ranges []netipx.IPRange `json:"ranges,omitempty"`
	// MaxBlocksPerHost limits the number of blocks of this pool that one owner claims. If
	// it is 0, only the limit of the [Config] applies.
	MaxBlocksPerHost int `json:"maxBlocksPerHost,omitempty"`
	// Subnet states that the pool is one subnet of hosts. Its network and broadcast
	// addresses, or its subnet-router anycast address for IPv6, are then not assigned
	// automatically. It has no effect on pools of one or two addresses.
	Subnet bool `json:"subnet,omitempty"`
	// Cooldown is the time during which a released address is not assigned to another
	// handle.
	Cooldown time.Duration `json:"-"`
	// Draining lists the other sizes that blocks of the pool may have.
	Draining []int `json:"draining,omitempty"`
}

// poolForm is a pool in JSON.
type poolForm Pool

// MarshalJSON writes a pool in readable form: uses by name, a cooldown as a text such as
// "1h", and no zero fields.
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

// UnmarshalJSON reads the form of MarshalJSON. It fails with [ipalloc.ErrInvalid] for an
// impossible pool and for unknown fields.
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
	// MaxBlocksPerHost limits the number of blocks that one owner claims, over all pools;
	// 0 means no limit.
	MaxBlocksPerHost int
}

// PoolChanges are changes of pools and reservations that one call makes together. Zero
// fields change nothing.
type PoolChanges struct {
	// Set lists pools to add. If a pool of that name exists, the call replaces it as
	// Engine.UpdatePool does; an equal pool changes nothing.
	Set []Pool
	// Remove names pools to remove. The call removes these pools before it adds the pools
	// of Set, so a pool may get another prefix. Names of pools that do not exist are
	// ignored.
	Remove []string
	// IfEmpty refuses to remove a pool with a held address, and disowns the pool's empty
	// blocks. One commit disables the pools and a later one removes them. An interrupted
	// call leaves them disabled; repeat it to continue. IfEmpty is refused in
	// [store.Together], because other engines would not see that the pools are disabled.
	IfEmpty bool
	// Unreserve removes ranges from the reservations of its By, or from all reservations if
	// By is empty; the rest of a reservation stays. Then Reserve adds reservations.
	// Addresses in use stay in use.
	Reserve, Unreserve []Reservation
}
