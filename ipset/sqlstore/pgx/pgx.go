// Package pgx links the driver pgx into programs that keep an ipset in PostgreSQL. Import it for its effect:
//
//	import _ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx"
//
//	db, err := sql.Open("pgx", "postgres://vpn@db.example.com/vpn?sslmode=verify-full")
//
// It registers the driver "pgx" with database/sql, as github.com/jackc/pgx/v5/stdlib does, and tells package sqlstore how to read
// its errors and notifications. A program on SQLite does not import it, and so does not link PostgreSQL. The package exports
// nothing.
package pgx

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ipalloc/ipalloc/ipset/sqlstore/internal/driver"
)

func init() {
	driver.Postgres = &driver.Calls{Report: report, Unsent: unsent, Listen: listen}
}

func report(err error) (driver.Report, bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return driver.Report{}, false
	}
	severity := pg.SeverityUnlocalized
	if severity == "" {
		severity = pg.Severity
	}
	return driver.Report{Code: pg.Code, Severity: severity}, true
}

func unsent(err error) bool {
	return errors.As(err, new(*pgconn.ConnectError)) || pgconn.SafeToRetry(err)
}

func listen(ctx context.Context, conn any, channel string, wake func(), told func(payload string)) error {
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		return nil // a driver around pgx
	}
	if _, err := c.Conn().Exec(ctx, `LISTEN "`+channel+`"`); err != nil {
		return sqldriver.ErrBadConn
	}
	wake() // for commits from before
	for {
		n, err := c.Conn().WaitForNotification(ctx)
		if err != nil {
			return sqldriver.ErrBadConn // so that the pool drops a connection that listens
		}
		told(n.Payload)
	}
}
