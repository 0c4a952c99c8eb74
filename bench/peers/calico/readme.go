package main

import (
	"bytes"
	"fmt"
	"os"
)

// The table stands between these two lines.
const (
	beginMark = "<!-- bench-peers-calico:begin -->"
	endMark   = "<!-- bench-peers-calico:end -->"
)

// marked returns where the text between the markers begins and ends.
func marked(data []byte) (begin, end int, err error) {
	begin = bytes.Index(data, []byte(beginMark))
	if begin < 0 {
		return 0, 0, fmt.Errorf("no line %q", beginMark)
	}
	begin += len(beginMark)
	end = bytes.Index(data[begin:], []byte(endMark))
	if end < 0 {
		return 0, 0, fmt.Errorf("no line %q after %q", endMark, beginMark)
	}
	return begin, begin + end, nil
}

// refresh puts text between the markers of a file. It leaves the file alone if
// they are not there.
func refresh(path, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end, err := marked(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	out := bytes.Join([][]byte{data[:begin], data[end:]}, []byte("\n"+text+"\n"))
	return os.WriteFile(path, out, 0o644)
}
