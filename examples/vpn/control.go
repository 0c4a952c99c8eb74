package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Control is the control plane of a VPN: a table of machines, each with an address of its group. The row and the address change
// in one transaction. Any number of processes may use one database.
type Control struct {
	db    *sql.DB
	store *sqlstore.Store
}

// Machine is one row.
type Machine struct {
	Name, Group string
	Address     netip.Addr
}

// NewControl opens the control plane in a database and makes its tables if needed.
func NewControl(ctx context.Context, db *sql.DB) (*Control, error) {
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		return nil, err
	}
	c := &Control{db: db, store: s}
	return c, c.change(ctx, func(tx *sql.Tx, _ *ipset.Engine) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS machines (name varchar(100) PRIMARY KEY, team varchar(100) NOT NULL, address varchar(50) NOT NULL UNIQUE)`)
		return err
	})
}

// owner holds the blocks: the addresses of a VPN belong to no host.
var owner = alloc.Owner{Kind: alloc.Virtual, Name: "vpn"}

// newEngine returns an engine with the options that all of this program's engines have.
func newEngine(s store.Store) (*ipset.Engine, error) { return ipset.New(s, ipset.Options{}) }

// change runs f in a transaction, with an engine of its own inside. It repeats the transaction if it met another one.
func (c *Control) change(ctx context.Context, f func(tx *sql.Tx, e *ipset.Engine) error) error {
	return c.store.InTx(ctx, func(tx *sql.Tx, in store.Store) error {
		e, err := newEngine(in)
		if err != nil {
			return err
		}
		return f(tx, e)
	})
}

// AddGroup adds a group of machines and the range of its addresses.
func (c *Control) AddGroup(ctx context.Context, group string, p netip.Prefix) error {
	return c.change(ctx, func(_ *sql.Tx, e *ipset.Engine) error {
		bits := max(p.Bits(), p.Addr().BitLen()-6)
		return e.AddPool(ctx, ipset.Pool{Name: group, Prefix: p, BlockBits: bits, Subnet: true})
	})
}

// Enrol adds a machine to a group and returns its address. Repeating it is safe: a machine of that group keeps its address.
func (c *Control) Enrol(ctx context.Context, name, group string) (m Machine, err error) {
	err = c.change(ctx, func(tx *sql.Tx, e *ipset.Engine) error {
		if m, err = find(ctx, tx, name); err == nil && m.Group == group {
			return nil
		} else if err == nil {
			return fmt.Errorf("%w: machine %q is in group %q", ipalloc.ErrExists, name, m.Group)
		} else if !errors.Is(err, ipalloc.ErrNotFound) {
			return err
		}
		a, err := assign(ctx, e, name, group)
		if err != nil {
			return err
		}
		m = Machine{name, group, a}
		_, err = tx.ExecContext(ctx, "INSERT INTO machines (name, team, address) VALUES ($1, $2, $3)", name, group, a.String())
		return err
	})
	return m, err
}

// assign takes the next address of a group.
func assign(ctx context.Context, e *ipset.Engine, name, group string) (netip.Addr, error) {
	args := ipset.AssignArgs{Owner: owner, Claim: alloc.Claim{Handle: name}, Pools: []string{group}}
	pools, err := e.Pools(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, p := range pools {
		if p.Name == group && p.Prefix.Addr().Is4() {
			args.Num4 = 1
		} else if p.Name == group {
			args.Num6 = 1
		}
	}
	if args.Num4+args.Num6 == 0 {
		return netip.Addr{}, fmt.Errorf("%w: group %q", ipalloc.ErrNotFound, group)
	}
	got, err := e.AutoAssign(ctx, args)
	if err != nil {
		return netip.Addr{}, err
	}
	return append(got.V4, got.V6...)[0].Address, nil
}

// Move gives a machine another address: the named one, or the next of its group if to is not valid. The old address is free
// afterwards; if the new one cannot be had, nothing changes.
func (c *Control) Move(ctx context.Context, name string, to netip.Addr) (m Machine, err error) {
	err = c.change(ctx, func(tx *sql.Tx, e *ipset.Engine) error {
		if m, err = find(ctx, tx, name); err != nil || m.Address == to {
			return err
		}
		old := m.Address
		if to.IsValid() {
			_, err = e.AssignIP(ctx, ipset.AssignIPArgs{Address: to, Owner: owner, Claim: alloc.Claim{Handle: name}})
			m.Address = to
		} else {
			m.Address, err = assign(ctx, e, name, m.Group)
		}
		if err != nil {
			return err
		}
		results, err := e.ReleaseIPs(ctx, alloc.Release{Address: old, Guard: alloc.Guard{Handle: name}})
		if err != nil || results[0].Outcome != alloc.Released {
			return fmt.Errorf("release %s of %q: %v, %w", old, name, results, err)
		}
		_, err = tx.ExecContext(ctx, "UPDATE machines SET address = $1 WHERE name = $2", m.Address.String(), name)
		return err
	})
	return m, err
}

// Remove removes a machine and frees its address.
func (c *Control) Remove(ctx context.Context, name string) error {
	return c.change(ctx, func(tx *sql.Tx, e *ipset.Engine) error {
		if _, err := find(ctx, tx, name); err != nil {
			return err
		}
		if _, err := e.ReleaseByHandle(ctx, name); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM machines WHERE name = $1", name)
		return err
	})
}

// find returns a machine, or ipalloc.ErrNotFound.
func find(ctx context.Context, tx *sql.Tx, name string) (Machine, error) {
	m, text := Machine{Name: name}, ""
	err := tx.QueryRowContext(ctx, "SELECT team, address FROM machines WHERE name = $1", name).Scan(&m.Group, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return m, fmt.Errorf("%w: machine %q", ipalloc.ErrNotFound, name)
	}
	if err != nil {
		return m, err
	}
	m.Address, err = netip.ParseAddr(text)
	return m, err
}

// Machines returns all machines, by name.
func (c *Control) Machines(ctx context.Context) ([]Machine, error) {
	rows, err := c.db.QueryContext(ctx, "SELECT name, team, address FROM machines ORDER BY name")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []Machine
	for rows.Next() {
		var m Machine
		var text string
		if err := rows.Scan(&m.Name, &m.Group, &text); err != nil {
			return nil, err
		}
		if m.Address, err = netip.ParseAddr(text); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, rows.Err()
}

// Verify compares the machines with the addresses that are held, while nothing changes, and has the engine check itself.
func (c *Control) Verify(ctx context.Context) error {
	machines, err := c.Machines(ctx)
	if err != nil {
		return err
	}
	rows := make(map[netip.Addr]string, len(machines))
	for _, m := range machines {
		rows[m.Address] = m.Name
	}
	e, err := newEngine(c.store)
	if err != nil {
		return err
	}
	report, err := e.Operator().Check(ctx, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range report.Problems {
		errs = append(errs, fmt.Errorf("%v", p))
	}
	held := 0
	for a, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		if held++; rows[a.Address] != a.Handle {
			errs = append(errs, fmt.Errorf("%s is held by %q, its row says %q", a.Address, a.Handle, rows[a.Address]))
		}
	}
	if held != len(machines) {
		errs = append(errs, fmt.Errorf("%d machines, %d addresses held", len(machines), held))
	}
	return errors.Join(errs...)
}
