package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/wire"
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
		data := wire.Seal(bytes.Clone(body), 0)
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

// FuzzMemory reads bytes as commits, compares the store with a map at the end, and restores it from its snapshot. Two bytes
// of an operation choose its key, one what becomes of it.
func FuzzMemory(f *testing.F) {
	f.Add([]byte("ab0ac1ad2ba3bb0"), uint8(1))
	f.Add(bytes.Repeat([]byte("kx0ky1kz9ka2"), 40), uint8(40))
	f.Fuzz(func(t *testing.T, data []byte, per uint8) {
		r := rand.New(rand.NewPCG(1, uint64(per)))
		w := newTwin(t)
		var ops []Op
		seen := map[string]bool{}
		for ; len(data) >= 3 && len(w.want) < 1000; data = data[3:] {
			key := fmt.Sprintf("%c%s%d", 'a'+data[0]%3, strings.Repeat("p", int(data[0]%5)*60), data[1])
			op := Op{Kind: Put, Key: key, Value: value(r), Expect: AnyRevision}
			switch data[2] % 8 {
			case 0, 1:
				op = Op{Kind: Delete, Key: key, Expect: AnyRevision}
			case 2:
				op.Value = strings.Repeat("v", int(data[2])*2)
			}
			if !seen[key] {
				ops, seen[key] = append(ops, op), true
			}
			if len(ops) > int(per%60) {
				w.commit(ops...)
				ops = nil
				clear(seen)
			}
		}
		w.check(r)
		bin, err := w.m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if w.m, err = RestoreMemory(bin); err != nil {
			t.Fatal(err)
		}
		w.check(r)
	})
}
