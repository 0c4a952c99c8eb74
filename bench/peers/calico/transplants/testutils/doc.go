// Package testutils runs the suite on one datastore.
package testutils
