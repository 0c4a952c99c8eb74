package store

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/snap"
)

// FuzzRestore reads any bytes as a snapshot behind a right checksum: an error, or a store that passes its check and whose
// snapshot is the same bytes.
func FuzzRestore(f *testing.F) {
	m := NewMemory()
	for _, k := range []string{"", "a", "b\x00", "\xff"} {
		if _, err := m.Commit(context.Background(), []Op{{Kind: Put, Key: "k" + k, Value: strings.Repeat(k, 3), Expect: AnyRevision}}); err != nil {
			f.Fatal(err)
		}
		data, _ := m.MarshalBinary()
		f.Add(data[:len(data)-4])
	}
	f.Add([]byte(snapshotMagic + "\x01\x07\x80\x00"))
	f.Add([]byte(snapshotMagic + "\x02\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		data := snap.Seal(bytes.Clone(body), 0)
		m, err := RestoreMemory(data)
		if err != nil {
			return
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		if again, err := m.MarshalBinary(); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q, %v from %q", again, err, data)
		}
	})
}
