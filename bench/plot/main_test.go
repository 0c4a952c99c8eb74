package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

const table = `
| time of                                              | ours    | bitset  | Kubernetes |
|------------------------------------------------------|--------:|--------:|-----------:|
| Release + AllocateNext, 2^16 children, 50 % taken    | 25.9 ns | 19.6 ns |     455 ns |
| Release + AllocateNext, 2^20 children, 50 % taken    | 1.00 ns | 1.00 ns |    1.00 ns |
| Release + AllocateNext, 2^16 children, 99.99 % taken | 60.8 ns | 57.7 ns |    18.1 us |
`

func TestRead(t *testing.T) {
	lines, err := read(table)
	if err != nil {
		t.Fatal(err)
	}
	want := []line{
		{"Kubernetes", []point{{50, 455}, {99.99, 18100}}},
		{"ours", []point{{50, 25.9}, {99.99, 60.8}}},
		{"bitset", []point{{50, 19.6}, {99.99, 57.7}}},
	}
	for i, w := range want {
		if l := lines[i]; l.name != w.name || len(l.at) != 2 || l.at[0] != w.at[0] || l.at[1] != w.at[1] {
			t.Errorf("got %v, want %v", lines[i], w)
		}
	}
	for _, broken := range []string{
		"", strings.ReplaceAll(table, "2^16", "2^17"), strings.ReplaceAll(table, "bitset", "other"),
		strings.ReplaceAll(table, "18.1 us", "-"), strings.ReplaceAll(table, "18.1 us", "18.1 h"),
	} {
		if lines, err := read(broken); err == nil {
			t.Errorf("read %v from a table that lacks a time:\n%s", lines, broken)
		}
	}
}

// The picture in the repository is the one of the table beside it, and well-formed.
func TestPictureIsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../peers/README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../peers/pair.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != draw(lines) {
		t.Error("pair.svg shows another run: type go run ./bench/plot")
	}
	for d := xml.NewDecoder(strings.NewReader(string(have))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
