package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// notInConfig are the flags that choose what one run does. A file of settings cannot
// have them.
var notInConfig = []string{"config", "dry-run", "explain", "version"}

// readConfig sets flags from a YAML file whose fields have the names of flags, such as a
// mounted ConfigMap. It leaves flags alone that the command line has set. Reading is as
// strict as that of ClusterCIDRs.
func readConfig(f *flag.FlagSet, path string) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	fields := map[string]func(value) error{}
	f.VisitAll(func(one *flag.Flag) {
		if !slices.Contains(notInConfig, one.Name) {
			fields[one.Name] = func(v value) error {
				text, err := setting(one, v)
				if err != nil || set[one.Name] {
					return err
				}
				if f.Set(one.Name, text) != nil {
					return v.errorf("%q is out of range", text)
				}
				return nil
			}
		}
	})
	documents := yaml.NewDecoder(bytes.NewReader(data))
	v, err := nextDocument(documents)
	switch {
	case errors.Is(err, io.EOF):
		return nil // no field
	case err == nil && !errors.Is(documents.Decode(&yaml.Node{}), io.EOF):
		err = errors.New("want one document")
	case err == nil:
		err = v.object(fields)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// setting returns the text of a value of the flag's type. A string may also be a list,
// which is joined with commas.
func setting(f *flag.Flag, v value) (string, error) {
	var tag, want string
	switch f.Value.(flag.Getter).Get().(type) {
	case bool:
		tag, want = "!!bool", "true or false"
	case int:
		tag, want = "!!int", "an integer"
	case float64:
		tag, want = "!!int !!float", "a number"
	case time.Duration:
		if _, err := time.ParseDuration(v.node.Value); err != nil {
			return "", v.errorf("want a duration such as 10s")
		}
		tag, want = "!!str", "a duration such as 10s"
	default:
		if tag, want = "!!str", "a string"; v.node.Kind == yaml.SequenceNode {
			var parts []string
			err := v.list(func(v value) error {
				var s string
				err := text(&s)(v)
				parts = append(parts, s)
				return err
			})
			return strings.Join(parts, ","), err
		}
	}
	if v.node.Kind != yaml.ScalarNode || !slices.Contains(strings.Fields(tag), v.node.ShortTag()) {
		return "", v.errorf("want %s", want)
	}
	return v.node.Value, nil
}
