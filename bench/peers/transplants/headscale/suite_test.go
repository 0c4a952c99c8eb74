//go:build transplant

package db

import (
	"testing"

	"github.com/ipalloc/ipalloc/bench/peers/transplants/headscale/types"
)

func newSQLiteTestDB() (*HSDatabase, error) { return &HSDatabase{new(types.Table)}, nil }

func dbForTest(*testing.T) *HSDatabase { return &HSDatabase{new(types.Table)} }

func (db *HSDatabase) Close() error { return nil }
