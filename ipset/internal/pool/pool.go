package pool

import (
	"cmp"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"unicode/utf8"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/selector"
)

// The index of attributes has a record i<key>NUL<value>NUL<address> for each attribute of a holder whose key its pool lists. The
// address record notes these attributes. So the index follows from the addresses alone, even after a change of the pool's list.

// MaxIndex bounds the keys that a pool lists, because each may be a record more for each address of a commit.
const MaxIndex = 8

// checkIndex refuses keys that no index can have.
func checkIndex(keys []string) error {
	if len(keys) > MaxIndex {
		return cause.Invalid("Index", "%d attributes, at most %d", len(keys), MaxIndex)
	}
	for i, key := range keys {
		if err := cause.Name("Index", key); err != nil {
			return err
		}
		if slices.Contains(keys[:i], key) {
			return cause.Invalid("Index", "attribute %q twice", key)
		}
	}
	return nil
}

const (
	AllUses     = alloc.Workload | alloc.Tunnel | alloc.LoadBalancer
	defaultUses = alloc.Workload | alloc.Tunnel
)

// Pool is a pool with the values that the packages above ask for. [Catalog.Prepare] sets the fields beside [alloc.Pool].
type Pool struct {
	alloc.Pool
	Outer         int               // the index of the pool that it lies in, -1 for none
	Inner         AddrRanges        // what the pools in it serve
	Avoid         AddrRanges        // what automatic assignment may not take, nil for nothing
	shut          bool              // it is closed, or lies in a closed pool
	nodes, spaces *selector.Matcher // the selectors, compiled; nil for an empty one
}

// Check fills in defaults, compiles the selectors, and refuses impossible fields.
func (p *Pool) Check() (err error) {
	if err := p.checkFields(); err != nil {
		return err
	}
	if p.nodes, err = p.compile("Nodes", p.Nodes); err != nil {
		return err
	}
	p.spaces, err = p.compile("Namespaces", p.Namespaces)
	return err
}

// compile compiles a selector; an empty one, which most pools have, is nil.
func (p *Pool) compile(field string, s selector.Selector) (*selector.Matcher, error) {
	if len(s) == 0 {
		return nil, nil
	}
	m, err := s.Compile()
	if at := (*ipalloc.Error)(nil); errors.As(err, &at) {
		return nil, cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Field: field + at.Field, Reason: at.Reason, Err: ipalloc.ErrInvalid})
	}
	return m, err
}

// checkFields fills in defaults and refuses impossible fields, except the selectors.
func (p *Pool) checkFields() error {
	if err := cause.Name("Name", p.Name); err != nil {
		return err
	}
	if !utf8.ValidString(p.Name) { // the catalog is JSON, which would make other names equal
		return cause.Wrap(ipalloc.Error{Op: "check", Field: "Name", Text: p.Name, Reason: "it is not UTF-8", Err: ipalloc.ErrInvalid})
	}
	if len(p.Note) > cause.MaxName || !utf8.ValidString(p.Note) {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: cause.Invalid("Note", "it is not UTF-8 of at most %d bytes", cause.MaxName)})
	}
	if err := block.CheckPrefix(p.Prefix); err != nil {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: err})
	}
	width := p.Prefix.Addr().BitLen()
	if p.BlockBits == 0 {
		p.BlockBits = max(width-6, p.Prefix.Bits())
	}
	if least := max(p.Prefix.Bits(), width-64); p.BlockBits < least || p.BlockBits > width {
		is := cause.Invalid("BlockBits", "/%d is not from /%d to /%d", p.BlockBits, least, width)
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Err: is})
	}
	if p.Uses == 0 {
		p.Uses = defaultUses
	}
	if p.Uses&^AllUses != 0 {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: cause.Invalid("Uses", "unknown use")})
	}
	if err := checkIndex(p.Index); err != nil {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: err})
	}
	if p.Order > alloc.Random {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: cause.Invalid("Order", "unknown %s", p.Order)})
	}
	if p.MaxBlocksPerHost < 0 {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: cause.Invalid("MaxBlocksPerHost", "%d is negative", p.MaxBlocksPerHost)})
	}
	if p.Cooldown < 0 {
		return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Err: cause.Invalid("Cooldown", "%v is negative", p.Cooldown)})
	}
	beyond := len(Cut(p.Ranges, p.Prefix)) == 0 // a part of a split pool may have none
	for _, r := range p.Ranges {
		in := p.Prefix.Contains(r.From()) && p.Prefix.Contains(r.To())
		if !r.IsValid() || !in && (!beyond || addr.CheckAddr(r.From()) != nil || r.From().Is4() != p.Prefix.Addr().Is4()) {
			return cause.Wrap(ipalloc.Error{Op: "check", Name: p.Name, Prefix: p.Prefix, Err: cause.Invalid("Ranges", "%s is not in the prefix", r)})
		}
	}
	return nil
}

// Differs returns the name of the first field that differs between two checked pools, "" if they are equal. Draining does not count,
// because the engine sets it. Nor does a seed, a note or a block size that q has not named, or a Closed that q omits, which stays.
func (p Pool) Differs(q Pool) string {
	q.Seed, q.BlockBits = cmp.Or(q.Seed, p.Seed), cmp.Or(q.BlockBits, p.BlockBits)
	q.Closed, q.Note = q.Closed || p.Closed, cmp.Or(q.Note, p.Note)
	a, b := reflect.ValueOf(p.Pool), reflect.ValueOf(q.Pool)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		empty := x.Kind() == reflect.Slice && x.Len()+y.Len() == 0
		if name := a.Type().Field(i).Name; name != "Draining" && !empty && !reflect.DeepEqual(x.Interface(), y.Interface()) {
			return name
		}
	}
	return ""
}

// Clone returns a pool that shares nothing that can change.
func (p Pool) Clone() Pool {
	p.Ranges, p.Draining, p.Index = slices.Clone(p.Ranges), slices.Clone(p.Draining), slices.Clone(p.Index)
	p.Nodes, p.Namespaces = p.Nodes.Clone(), p.Namespaces.Clone()
	return p
}

// CheckConfig refuses a configuration that contradicts itself or has a negative limit.
func CheckConfig(c alloc.Config) error {
	switch {
	case c.NoAutoBlocks && !c.Strict:
		return cause.Invalid("Strict", "without automatic blocks, affinity must be strict")
	case c.MaxBlocksPerHost < 0:
		return cause.Invalid("MaxBlocksPerHost", "%d is negative", c.MaxBlocksPerHost)
	}
	return nil
}

// maxBlocks returns the limit of blocks per owner, 0 if none is claimed automatically; asked narrows it if it is above 0.
func maxBlocks(c alloc.Config, asked int) int {
	if c.NoAutoBlocks {
		return 0
	}
	limit := c.MaxBlocksPerHost
	if limit == 0 {
		limit = math.MaxInt
	}
	if asked > 0 {
		limit = min(limit, asked)
	}
	return limit
}

// avoided returns the addresses of a pool that automatic assignment may not take. The first of the reservations ends in the pool or
// behind it; inner has the addresses of the pool that other pools serve.
func (p *Pool) avoided(reserved, inner AddrRanges) (AddrRanges, error) {
	last, inside := record.LastAddr(p.Prefix), reserved.within(p.Prefix)
	if len(p.Ranges) == 0 && !p.Subnet && (inner == nil || inside == nil) {
		return inside, nil
	}
	var sb netipx.IPSetBuilder
	if len(p.Ranges) > 0 {
		sb.AddPrefix(p.Prefix)
	}
	for _, r := range p.Ranges {
		sb.RemoveRange(r)
	}
	if p.Subnet && p.Prefix.Addr().BitLen()-p.Prefix.Bits() > 1 {
		if sb.Add(p.Prefix.Addr()); p.Prefix.Addr().Is4() {
			sb.Add(last)
		}
	}
	for _, r := range inside {
		sb.AddRange(r)
	}
	for _, r := range inner {
		sb.RemoveRange(r)
	}
	set, err := sb.IPSet()
	if err != nil {
		return nil, err
	}
	return set.Ranges(), nil
}

// FreeRanges returns the addresses of a pool that no setting of its own keeps from automatic assignment.
func (p *Pool) FreeRanges() ([]netipx.IPRange, error) {
	avoid, err := p.avoided(nil, nil)
	if err != nil {
		return nil, err
	}
	var sb netipx.IPSetBuilder
	sb.AddPrefix(p.Prefix)
	for _, r := range avoid {
		sb.RemoveRange(r)
	}
	set, err := sb.IPSet()
	if err != nil {
		return nil, err
	}
	return set.Ranges(), nil
}

// BlocksOf returns the blocks that an address of the pool may be in: a block for each size that the pool has or had.
func (p *Pool) BlocksOf(a netip.Addr) []netip.Prefix {
	blocks := []netip.Prefix{netip.PrefixFrom(a, p.BlockBits).Masked()}
	for _, size := range p.Draining {
		blocks = append(blocks, netip.PrefixFrom(a, size).Masked())
	}
	return blocks
}
