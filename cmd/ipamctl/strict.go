package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go4.org/netipx"
	"sigs.k8s.io/yaml"
)

// A file of another program is read strictly: it is complete and understood, or it is refused with its line. Each field is taken, or is in
// a table of those that are dropped on purpose, which are counted. An item that cannot be taken is reserved with its reason.

// refusal is an item of a file that cannot be taken, with the addresses that are reserved in its place.
type refusal struct {
	what   string
	ranges []netipx.IPRange
	why    error
}

// refuse notes an item that cannot be taken.
func (inv *inventory) refuse(what string, where netipx.IPRange, why error) {
	inv.refused = append(inv.refused, refusal{what, []netipx.IPRange{where}, why})
}

// drop counts a field that is dropped on purpose.
func (inv *inventory) drop(field string) {
	if inv.dropped == nil {
		inv.dropped = map[string]int{}
	}
	inv.dropped[field]++
}

// droppedText names the fields that were dropped, with their numbers.
func droppedText(dropped map[string]int) string {
	parts := make([]string, 0, len(dropped))
	for _, field := range slices.Sorted(maps.Keys(dropped)) {
		parts = append(parts, fmt.Sprintf("%s %d", field, dropped[field]))
	}
	return strings.Join(parts, ", ")
}

var secondDocument = regexp.MustCompile(`(?m)^(---|\.\.\.)`)

// oneDocument returns a file of YAML or JSON as JSON, which is the file itself if it is JSON, for the lines of refusals. It refuses an empty file, a second document and a key that an object has twice.
func oneDocument(text []byte) ([]byte, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fail(exitUsage, "the file is empty")
	}
	if rest := bytes.TrimSpace(text); rest[0] == '{' || rest[0] == '[' {
		d := json.NewDecoder(bytes.NewReader(text))
		var first json.RawMessage
		if err := d.Decode(&first); err == nil && d.More() {
			return nil, fail(exitUsage, "line %d: a second document; make one list, as kubectl get A,B -o json does", lineAt(text, len(text)-len(bytes.TrimLeft(text[d.InputOffset():], " \t\r\n"))))
		}
	}
	begun := false // what comes before a first "---" is comments
	at := 0
	for _, m := range append(secondDocument.FindAllIndex(text, -1), []int{len(text), len(text)}) {
		part := withoutComments(text[at:m[0]])
		if begun && len(part) > 0 {
			return nil, fail(exitUsage, "line %d: a second document; make one list, as kubectl get A,B -o yaml does", lineAt(text, at))
		}
		begun, at = begun || len(part) > 0, min(m[0]+3, len(text))
	}
	out, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fail(exitUsage, "%s", strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	if json.Valid(text) {
		return text, nil
	}
	return out, nil
}

// placed puts the line before the text of an error about a part of a file of JSON, or about a key of that part. A file of YAML is read
// by way of JSON, whose lines are others.
func (inv *inventory) placed(part json.RawMessage, key string, err error) error {
	at := bytes.Index(inv.source, part)
	if err == nil || at < 0 || len(part) == 0 || !bytes.Contains(inv.source, []byte("\n")) {
		return err
	}
	if name, merr := json.Marshal(key); merr == nil && key != "" {
		at += max(0, bytes.Index(part, name))
	}
	return fail(exitUsage, "line %d: %v", lineAt(inv.source, at), err)
}

// withoutComments returns what is left of a text without lines of comments and space.
func withoutComments(text []byte) (rest []byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			rest = append(rest, line...)
		}
	}
	return rest
}

// lineAt returns the line of a place in a text.
func lineAt(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// strict decodes one document and refuses fields that it does not know.
func strict(text []byte, v any) error {
	doc, err := oneDocument(text)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	err = d.Decode(v)
	if err == nil || !bytes.Equal(doc, bytes.TrimPrefix(text, []byte("\ufeff"))) {
		return err
	}
	of := &inventory{source: doc}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return of.placed(doc[max(0, wrong.Offset-1):], "", err)
	}
	if name := unknownField.FindStringSubmatch(err.Error()); name != nil {
		return of.placed(doc, name[1], err)
	}
	return err
}

var unknownField = regexp.MustCompile(`unknown field "(.*)"`)

// fields are those of an object: what is taken and what is dropped on purpose.
type fields struct{ taken, dropped []string }

// decode decodes an object of a kind. It refuses a field that is in no list, and counts one that is dropped, unless it is empty.
func (f fields) decode(inv *inventory, kind, name string, text json.RawMessage, v any) error {
	var all map[string]json.RawMessage
	if len(text) == 0 {
		text = json.RawMessage("{}")
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return inv.placed(text, "", fail(exitUsage, "%s %s: %v", kind, name, err))
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch value := string(all[key]); {
		case slices.Contains(f.taken, key):
		case !slices.Contains(f.dropped, key):
			return inv.placed(text, key, fail(exitUsage, "%s %s: the field %s is not known, and what it says would be lost", kind, name, key))
		case !slices.Contains([]string{"null", `""`, "{}", "[]", "false", "0"}, value):
			inv.drop(kind + "." + key)
		}
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return inv.placed(text, "", fail(exitUsage, "%s %s: %v", kind, name, err))
	}
	return nil
}

// object is a Kubernetes object.
type object struct {
	apiVersion, kind, name string
	deleting               bool
	spec                   json.RawMessage
}

var (
	objectFields   = fields{taken: []string{"apiVersion", "kind", "metadata", "spec"}, dropped: []string{"status"}}
	listFields     = fields{taken: []string{"apiVersion", "kind", "metadata", "items"}}
	listMetaFields = fields{taken: []string{"continue", "remainingItemCount", "resourceVersion", "selfLink"}}
	metadataFields = fields{taken: []string{"name", "deletionTimestamp"}, dropped: []string{"namespace", "annotations", "labels", "uid", "resourceVersion", "creationTimestamp",
		"generation", "managedFields", "finalizers", "ownerReferences", "selfLink", "deletionGracePeriodSeconds", "generateName"}}
)

// objects reads YAML or JSON: an object, or a list of objects that is whole. want are their kinds, group is the end of their API group.
func (inv *inventory) objects(text []byte, group string, want ...string) (all []object, err error) {
	doc, err := oneDocument(text)
	if err != nil {
		return nil, err
	}
	if json.Valid(text) {
		inv.source = doc
	}
	return all, inv.addObject(&all, doc, "", group, want)
}

func (inv *inventory) addObject(all *[]object, doc json.RawMessage, kind, group string, want []string) error {
	var o struct {
		APIVersion, Kind string
		Metadata         json.RawMessage
		Spec             json.RawMessage
		Items            []json.RawMessage
	}
	if err := json.Unmarshal(doc, &o); err != nil {
		return fail(exitUsage, "not an object: %v", err)
	}
	if o.Kind == "" {
		o.Kind = kind
	}
	if of, list := strings.CutSuffix(o.Kind, "List"); list {
		var meta listMetadata
		if err := listFields.decode(inv, o.Kind, "", doc, nil); err != nil {
			return err
		}
		if err := listMetaFields.decode(inv, o.Kind, "metadata", o.Metadata, &meta); err != nil {
			return err
		}
		if meta.Continue != "" || meta.RemainingItemCount > 0 {
			return inv.placed(o.Metadata, "", fail(exitUsage, "a page of a list that goes on; make the whole list, as kubectl get does"))
		}
		for _, item := range o.Items {
			if err := inv.addObject(all, item, of, group, want); err != nil {
				return err
			}
		}
		return nil
	}
	of, _, grouped := strings.Cut(o.APIVersion, "/")
	if !slices.Contains(want, o.Kind) || grouped && (group == "" || !strings.HasSuffix(of, group)) {
		return inv.placed(doc, "", fail(exitUsage, "an object of kind %q of %q; %s is expected", o.Kind, o.APIVersion, strings.Join(want, " or ")))
	}
	var meta struct {
		Name              string
		DeletionTimestamp string
	}
	if err := metadataFields.decode(inv, "metadata", "", o.Metadata, &meta); err != nil {
		return err
	}
	if err := objectFields.decode(inv, o.Kind, meta.Name, doc, nil); err != nil {
		return err
	}
	*all = append(*all, object{o.APIVersion, o.Kind, meta.Name, meta.DeletionTimestamp != "", o.Spec})
	return nil
}
