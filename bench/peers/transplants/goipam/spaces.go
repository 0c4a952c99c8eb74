//go:build transplant

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// One process holds all: go-ipam knows no owners and no hosts.
const owner = "go-ipam"

// roots are a pool of prefixes and a pool of addresses each.
var roots = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// storage is a store whose spaces are the namespaces.
type storage struct {
	db     store.Store
	engine *ipset.Engine
}

func NewMemory(ctx context.Context) Storage {
	db := store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	st := storage{db, e}
	if err := errors.Join(err, st.CreateNamespace(ctx, defaultNamespace)); err != nil {
		panic(err)
	}
	return st
}

func (st storage) Name() string { return "ipalloc" }

// space is a namespace, which need not exist.
type space struct {
	*prefixes.Allocator
	engine *ipset.Engine
	db     store.Store
}

func (st storage) space(name string) (s space, err error) {
	if s.db, err = store.Space(st.db, name); err == nil {
		s.engine, err = st.engine.InSpace(name)
	}
	if err == nil {
		s.Allocator, err = prefixes.New(s.db, prefixes.Options{})
	}
	return s, err
}

func (st storage) CreateNamespace(ctx context.Context, namespace string) error {
	s, err := st.space(namespace)
	for _, root := range roots {
		if err == nil {
			err = s.AddPool(ctx, prefixes.Pool{Prefix: root, Sizes: prefixes.Sizes{Longest: root.Addr().BitLen()}})
		}
		if err == nil {
			err = s.engine.AddPool(ctx, alloc.Pool{Name: root.String(), Prefix: root})
		}
	}
	return err
}

func (st storage) ListNamespaces(ctx context.Context) (names []string, err error) {
	for name, err := range st.engine.Operator().Spaces(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func (st storage) DeleteNamespace(ctx context.Context, namespace string) error {
	s, err := st.space(namespace)
	for _, root := range roots {
		if err == nil {
			err = s.RemovePool(ctx, root)
		}
		if err == nil {
			err = s.engine.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{root.String()}, IfEmpty: true})
		}
	}
	if err == nil {
		err = st.engine.Operator().RemoveSpace(ctx, namespace)
	}
	return err
}

// held is a prefix with what is held of it. A record of its own says whether it gives addresses
// or children; each commit that gives one writes it on the revision that the call has read.
type held struct {
	space
	*Prefix
	at  netip.Prefix
	rev uint64
}

const forChildren = "children"

func (p held) use(kind store.Kind, value string) store.Op {
	return store.Op{Kind: kind, Key: "Use/" + p.at.String(), Value: value, Expect: p.rev}
}

func (st storage) find(ctx context.Context, cidr, namespace string) (p held, err error) {
	p.at, err = netip.ParsePrefix(cidr)
	p.at = p.at.Masked()
	if err == nil {
		p.space, err = st.space(namespace)
	}
	if err != nil {
		return p, err
	}
	rec, err := p.db.Get(ctx, nil, p.use(store.Guard, "").Key)
	if err != nil {
		return p, err
	}
	held, _, err := p.State(ctx, p.at)
	if err != nil {
		return p, err
	}
	if len(held) == 0 || held[0].Prefix != p.at {
		return p, fmt.Errorf("%w prefix %s not found", ErrNotFound, p.at)
	}
	parent := ""
	if held[0].Level > 1 {
		parent = held[0].Pool.String()
	}
	if p.Prefix, err = new(ipamer).newPrefix(p.at.String(), parent); err != nil {
		return p, err
	}
	p.rev, p.isParent = rec[0].Rev, rec[0].Value == forChildren
	for _, child := range held[1:] {
		if child.Pool == p.at {
			p.availableChildPrefixes[child.Prefix.String()] = false
		}
	}
	for al, err := range p.engine.Allocations(ctx, p.at) {
		if err != nil {
			return p, err
		}
		if !p.isParent {
			p.ips[al.Address.String()] = true
		}
	}
	return p, nil
}

func (st storage) ReadPrefix(ctx context.Context, cidr, namespace string) (Prefix, error) {
	p, err := st.find(ctx, cidr, namespace)
	if err != nil {
		return Prefix{}, err
	}
	return *p.Prefix, nil
}

func (st storage) ReadAllPrefixCidrs(ctx context.Context, namespace string) (cidrs []string, err error) {
	s, err := st.space(namespace)
	if err != nil {
		return nil, err
	}
	all, _, err := s.State(ctx, netip.Prefix{})
	for _, h := range all {
		cidrs = append(cidrs, h.Prefix.String())
	}
	return cidrs, err
}

func (st storage) ReadAllPrefixes(ctx context.Context, namespace string) (list Prefixes, err error) {
	cidrs, err := st.ReadAllPrefixCidrs(ctx, namespace)
	for _, cidr := range cidrs {
		p, err := st.ReadPrefix(ctx, cidr, namespace)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, err
}

// create takes a prefix from a root, or, with the operations of also, from another one.
func (s space) create(ctx context.Context, at, from netip.Prefix, also ...store.Op) error {
	r := prefixes.Request{Pool: from, Owner: owner, New: true}
	if !at.IsSingleIP() && at.Bits() > 0 {
		r.Children = prefixes.Sizes{Shortest: at.Bits() + 1, Longest: at.Addr().BitLen()}
	}
	_, err := s.Occupy(ctx, at, r, append(also, held{at: at}.use(store.Put, ""))...)
	return err
}

// CreatePrefix takes a prefix with the addresses that it has.
func (st storage) CreatePrefix(ctx context.Context, p Prefix, namespace string) (Prefix, error) {
	s, err := st.space(namespace)
	at, bad := netip.ParsePrefix(p.Cidr)
	if err := errors.Join(err, bad); err != nil {
		return p, err
	}
	if p.ParentCidr != "" {
		_, err = (&ipamer{storage: st}).acquireChildPrefixInternal(ctx, namespace, p.ParentCidr, p.Cidr, 0)
	} else {
		root, _ := at.Addr().Prefix(0)
		err = s.create(ctx, at, root)
	}
	if errors.Is(err, ipalloc.ErrNotFound) {
		return p, ErrNamespaceDoesNotExist
	} else if err != nil {
		return p, err
	}
	return st.UpdatePrefix(ctx, p, namespace)
}

// UpdatePrefix assigns the addresses of a prefix that the store lacks.
func (st storage) UpdatePrefix(ctx context.Context, p Prefix, namespace string) (Prefix, error) {
	have, err := st.find(ctx, p.Cidr, namespace)
	for ip := range p.ips {
		if err == nil && !have.ips[ip] {
			_, err = (&ipamer{storage: st}).acquireSpecificIPInternal(ctx, namespace, p.Cidr, ip)
		}
	}
	return p, err
}

func (st storage) DeletePrefix(ctx context.Context, p Prefix, namespace string) (Prefix, error) {
	have, err := st.find(ctx, p.Cidr, namespace)
	if err == nil && have.hasIPs() {
		err = fmt.Errorf("prefix %s has ips", p.Cidr)
	}
	if err == nil {
		err = have.Release(ctx, have.at, owner, have.use(store.Delete, ""))
	}
	return p, err
}

// DeleteAllPrefixes fails while an address is held.
func (st storage) DeleteAllPrefixes(ctx context.Context, namespace string) error {
	cidrs, err := st.ReadAllPrefixCidrs(ctx, namespace)
	for _, cidr := range slices.Backward(cidrs) { // children first
		if err == nil {
			_, err = st.DeletePrefix(ctx, Prefix{Cidr: cidr}, namespace)
		}
	}
	return err
}
