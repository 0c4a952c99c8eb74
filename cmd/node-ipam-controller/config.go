package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
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
	if err := setFlags(f, data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func setFlags(f *flag.FlagSet, data []byte) error {
	all, err := documents(data)
	if err != nil || len(all) == 0 {
		return err
	}
	if len(all) > 1 {
		return errors.New("want one document")
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(all[0]))
	decoder.UseNumber() // a number of the length that is written
	if err := decoder.Decode(&fields); err != nil {
		return errors.New("want a mapping of fields")
	}
	typed := map[string]bool{}
	f.Visit(func(f *flag.Flag) { typed[f.Name] = true })
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		one := f.Lookup(name)
		if one == nil || slices.Contains(notInConfig, name) {
			return fmt.Errorf("unknown field %q", name)
		}
		text, want, ok := setting(one, fields[name])
		if ok && !typed[name] {
			ok = f.Set(name, text) == nil
		}
		if !ok {
			return fmt.Errorf("%s: %v: want %s", name, fields[name], want)
		}
	}
	return nil
}

// setting returns the text of a value, what the flag takes, and whether the value has that type. A string may also be a list, which
// is joined with commas.
func setting(f *flag.Flag, v any) (text, want string, ok bool) {
	switch f.Value.(flag.Getter).Get().(type) {
	case bool:
		_, ok = v.(bool)
		want = "true or false"
	case int:
		_, ok = v.(json.Number)
		want = "an integer"
	case float64:
		_, ok = v.(json.Number)
		want = "a number"
	case time.Duration:
		_, ok = v.(string)
		want = "a duration such as 10s"
	default:
		list, isList := v.([]any)
		var parts []string
		for _, part := range list {
			if text, ok := part.(string); ok {
				parts = append(parts, text)
			}
		}
		if isList && len(parts) == len(list) {
			return strings.Join(parts, ","), want, true
		}
		_, ok = v.(string)
		want = "a string, or a list of strings"
	}
	return fmt.Sprint(v), want, ok
}
