package boltstore

import (
	"io"
	"os"
	"testing"
)

// countingReader counts the reads of a file.
type countingReader struct {
	io.ReaderAt
	n int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.n++
	return c.ReaderAt.ReadAt(p, off)
}

// PagesRead returns how often opening a file reads from it when it is not verified, and how many pages it has.
func PagesRead(t *testing.T, path string) (n, all int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c := &countingReader{ReaderAt: f}
	opts, err := Options{Verify: VerifyRestart}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspectImage(c, path, info.Size(), &opts); err != nil {
		t.Fatal(err)
	}
	n = c.n
	im, err := readImage(f, path, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return n, int64(im.meta.high)
}

// SnapshotBetween is Snapshot with a function that is called after each piece that it copies.
var SnapshotBetween = snapshot
