// Package report is shared by the benchmarks that compare with peers. It has the
// layout of tables and numbers, the facts of the machine, and the code that puts
// tables into a Markdown file.
package report

import (
	"bytes"
	"fmt"
	"os"
)

// A Place is the text of a Markdown file between two comments that have its name:
//
//	<!-- NAME:begin -->
//	<!-- NAME:end -->
type Place struct {
	File, Name string
}

// Check returns an error if the file cannot be read or lacks the comments.
func (p Place) Check() error {
	_, _, err := p.split()
	return err
}

// Refresh replaces the text. It leaves a file without the comments as it is.
func (p Place) Refresh(text string) error {
	before, after, err := p.split()
	if err != nil {
		return err
	}
	return os.WriteFile(p.File, bytes.Join([][]byte{before, after}, []byte("\n"+text+"\n")), 0o644)
}

// split returns the file up to the text and from its end, comments included.
func (p Place) split() (before, after []byte, err error) {
	data, err := os.ReadFile(p.File)
	if err != nil {
		return nil, nil, err
	}
	begin, end := "<!-- "+p.Name+":begin -->", "<!-- "+p.Name+":end -->"
	i := bytes.Index(data, []byte(begin))
	if i < 0 {
		return nil, nil, fmt.Errorf("%s: no line %q", p.File, begin)
	}
	i += len(begin)
	j := bytes.Index(data[i:], []byte(end))
	if j < 0 {
		return nil, nil, fmt.Errorf("%s: no line %q after %q", p.File, end, begin)
	}
	return data[:i:i], data[i+j:], nil
}
