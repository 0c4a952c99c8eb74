package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// value is a place in a YAML document: a node and the path of fields that leads to it.
// Reading one is strict: a field that is not expected, or has a value of another type,
// is an error with the line and the path.
type value struct {
	node *yaml.Node
	path string
}

// fieldError says what is wrong where.
type fieldError struct {
	line int // 0 if unknown
	path string
	text string
}

func (e *fieldError) Error() string {
	where := e.path
	if e.line > 0 {
		where = "line " + strconv.Itoa(e.line) + ": " + e.path
	}
	return where + ": " + e.text
}

func (v value) errorf(format string, args ...any) error {
	return &fieldError{v.node.Line, v.path, fmt.Sprintf(format, args...)}
}

// maxFile bounds the files that are read: a ConfigMap holds at most 1 MiB.
const maxFile = 4 << 20

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", path, maxFile)
	}
	return data, err
}

// nextDocument returns the next document, io.EOF after the last. Aliases are refused: they make
// a few bytes stand for any number of fields, or for a field within itself.
func nextDocument(documents *yaml.Decoder) (value, error) {
	var document yaml.Node
	if err := documents.Decode(&document); err != nil {
		return value{}, err
	}
	v := value{document.Content[0], ""}
	return v, v.refuseAliases()
}

func (v value) refuseAliases() error {
	if v.node.Kind == yaml.AliasNode {
		return v.errorf("aliases are not read; repeat the text")
	}
	for _, n := range v.node.Content {
		if err := (value{n, "*" + n.Value}).refuseAliases(); err != nil {
			return err
		}
	}
	return nil
}

func (v value) isNull() bool { return v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!null" }

// object reads a mapping: each field by the function of its name. A null is an empty
// mapping.
func (v value) object(fields map[string]func(value) error) error {
	if v.isNull() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		return v.errorf("want a mapping of fields")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		name := v.node.Content[i].Value
		field := value{v.node.Content[i+1], v.path + "." + name}
		if v.path == "" {
			field.path = name
		}
		read, ok := fields[name]
		switch {
		case !ok:
			return field.errorf("unknown field")
		case seen[name]:
			return field.errorf("set twice")
		}
		seen[name] = true
		if err := read(field); err != nil {
			return err
		}
	}
	return nil
}

// pairs reads a mapping of strings.
func (v value) pairs(f func(key string, value value) error) error {
	if v.isNull() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		return v.errorf("want a mapping of strings")
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i].Value
		if err := f(key, value{v.node.Content[i+1], v.path + "[" + key + "]"}); err != nil {
			return err
		}
	}
	return nil
}

// list reads a sequence.
func (v value) list(f func(value) error) error {
	if v.isNull() {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		return v.errorf("want a list")
	}
	for i, n := range v.node.Content {
		if err := f(value{n, v.path + "[" + strconv.Itoa(i) + "]"}); err != nil {
			return err
		}
	}
	return nil
}

// text reads a string into s. A number or a truth value is none, as in the API.
func text(s *string) func(value) error {
	return func(v value) error {
		switch {
		case v.isNull():
			return nil
		case v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != "!!str" && v.node.ShortTag() != "!!timestamp":
			return v.errorf("want a string")
		}
		*s = v.node.Value
		return nil
	}
}

// number reads an integer into n.
func number(n *int) func(value) error {
	return func(v value) error {
		if v.isNull() {
			return nil
		}
		i, err := strconv.Atoi(v.node.Value)
		if v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != "!!int" || err != nil {
			return v.errorf("want an integer")
		}
		*n = i
		return nil
	}
}

// ignored reads a field that means nothing here.
func ignored(value) error { return nil }
