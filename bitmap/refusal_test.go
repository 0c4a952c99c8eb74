package bitmap

import (
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	b := New(100)
	b.Set(3)
	data, err := b.MarshalBinary()
	rows := []refusal.Row{{Call: "Bitmap.MarshalBinary", What: "never", Err: err}}
	_, err = b.AppendBinary(nil)
	rows = append(rows, refusal.Row{Call: "Bitmap.AppendBinary", What: "never", Err: err})
	for i := range data {
		rows = append(rows, refusal.Row{Call: "Bitmap.UnmarshalBinary", What: "cut", Err: b.UnmarshalBinary(data[:i]), Is: ipalloc.ErrCorrupt, Op: "unmarshal"})
	}
	b.count++
	rows = append(rows, refusal.Row{Call: "Bitmap.Check", What: "a wrong count", Err: b.Check(), Is: ipalloc.ErrCorrupt, Op: "check"})
	refusal.Check(t, "bitmap", rows)
}
