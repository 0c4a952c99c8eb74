// Package driver defines the functions of a PostgreSQL driver that package sqlstore needs beyond database/sql. Package
// sqlstore/pgx provides it in its init function, so a program that does not import pgx does not link PostgreSQL.
package driver

import "context"

// Postgres is the linked driver, nil if there is none.
var Postgres *Calls

// Calls are the functions of a driver.
type Calls struct {
	// Report returns the answer of the server in err; ok is false if the server gave none.
	Report func(err error) (r Report, ok bool)
	// Unsent reports whether the statement that failed with err never reached the server.
	Unsent func(err error) bool
	// Listen listens on a channel of the database with the driver's connection conn. It calls wake when it listens, and told with
	// the payload of each notification, until the context or the connection ends. It returns nil without listening if conn
	// is not of this driver; after an error the connection must not be used again.
	Listen func(ctx context.Context, conn any, channel string, wake func(), told func(payload string)) error
}

// Report is an error that a server sent.
type Report struct {
	Code     string // SQLSTATE
	Severity string // ERROR, FATAL or PANIC
}

// Reported returns the answer of a PostgreSQL server in err; ok is false if there is none.
func Reported(err error) (r Report, ok bool) {
	if Postgres == nil || err == nil {
		return r, false
	}
	return Postgres.Report(err)
}

// Unsent reports whether the statement that failed with err never reached a PostgreSQL server.
func Unsent(err error) bool { return Postgres != nil && Postgres.Unsent(err) }
