// Command vpn is the address half of a VPN's control plane on a SQL database: the row of a machine and its address are
// committed together or not at all.
//
//	vpn -db sqlite://vpn.sqlite group staff 100.64.0.0/20
//	vpn -db sqlite://vpn.sqlite enrol laptop-1 staff
//	vpn -db sqlite://vpn.sqlite move laptop-1 100.64.3.7
//	vpn -db postgres://vpn@10.0.0.1/vpn list
//
// control.go is the program, main.go its flags. README.md is a walk through it.
//
// Exit status: 0 when all went well, 1 when the call failed, 2 for wrong words.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"

	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/ipalloc/ipalloc/internal/storeurl"
	"github.com/ipalloc/ipalloc/internal/storeurl/access"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

const usage = `Usage: vpn -db sqlite:///path/of/file|postgres://user@host:port/database COMMAND

  group NAME PREFIX       add a group of machines and its addresses
  enrol MACHINE GROUP     add a machine
  move MACHINE [ADDRESS]  give it another address
  remove MACHINE          remove it
  list                    show all machines
  verify                  compare the machines with the addresses that are held
`

// errUsage means that the words are no command.
var errUsage = errors.New("no such command")

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("vpn", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	name := flags.String("db", "sqlite://vpn.sqlite", "the `database`")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	l, err := storeurl.Parse("-db", *name, "sqlite", "postgres")
	if err != nil {
		fmt.Fprintf(stderr, "vpn: %v\n", err)
		return 2
	}
	driver := "pgx"
	dsn, err := access.Postgres(l)
	if err != nil {
		fmt.Fprintf(stderr, "vpn: %v\n", err)
		return 2
	}
	if l.Kind == "sqlite" {
		driver, dsn = "sqlite", storeurl.SQLite(l.Path, "_txlock=immediate", "_pragma=busy_timeout(10000)")
	}
	db, err := sql.Open(driver, dsn)
	if err == nil {
		defer func() { _ = db.Close() }()
		err = do(ctx, db, flags.Args(), stdout)
	}
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprint(stderr, usage)
		return 2
	case err != nil:
		fmt.Fprintf(stderr, "vpn: %v\n", err)
		return 1
	}
	return 0
}

// do carries out one command.
func do(ctx context.Context, db *sql.DB, words []string, stdout io.Writer) error {
	if len(words) == 0 {
		return errUsage
	}
	c, err := NewControl(ctx, db)
	if err != nil {
		return err
	}
	show := func(m Machine, err error) error {
		if err == nil {
			_, err = fmt.Fprintf(stdout, "%s\t%s\t%s\n", m.Name, m.Group, m.Address)
		}
		return err
	}
	switch command, words := words[0], words[1:]; {
	case command == "group" && len(words) == 2:
		p, err := netip.ParsePrefix(words[1])
		if err != nil {
			return err
		}
		return c.AddGroup(ctx, words[0], p)
	case command == "enrol" && len(words) == 2:
		return show(c.Enrol(ctx, words[0], words[1]))
	case command == "move" && len(words) == 1:
		return show(c.Move(ctx, words[0], netip.Addr{}))
	case command == "move" && len(words) == 2:
		a, err := netip.ParseAddr(words[1])
		if err != nil {
			return err
		}
		return show(c.Move(ctx, words[0], a))
	case command == "remove" && len(words) == 1:
		return c.Remove(ctx, words[0])
	case command == "list" && len(words) == 0:
		machines, err := c.Machines(ctx)
		for _, m := range machines {
			err = errors.Join(err, show(m, nil))
		}
		return err
	case command == "verify" && len(words) == 0:
		return c.Verify(ctx)
	}
	return errUsage
}
