package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

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

// documents returns the documents of a YAML text as JSON, without those that are empty. A field that is set twice is refused. So
// are aliases that make a few bytes stand for many fields, or for a field within itself.
func documents(data []byte) (out [][]byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		document, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, err
		}
		if string(document) != "null" {
			out = append(out, document)
		}
	}
}

// kinds are the kinds of the fields of resources in words.
var kinds = map[reflect.Kind]string{reflect.Struct: "a mapping of fields", reflect.Map: "a mapping", reflect.Slice: "a list",
	reflect.String: "a string", reflect.Int: "an integer"}

// decodeStrictly reads JSON into a struct. A field that the struct lacks, or has with another type, is an error with its path.
func decodeStrictly(data []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(data, into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("%s: want %s, not %s", wrong.Field, kinds[wrong.Type.Kind()], wrong.Value)
	}
	return errors.Join(append(unknown, err)...)
}
