package plugin

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The first use of reflection by encoding/json takes 0.15 ms, a fifteenth of a call. So the
// usual configuration is taken apart without it: members with the very names of the keys,
// none twice, texts without escapes. Anything else is left to encoding/json.

// field is where the value of a key goes: a text, or a value as it is written.
type field struct {
	name string
	text *string
	raw  *json.RawMessage
	seen bool
}

// readPlain reads a plain configuration. If it returns false, c is not to be used.
func (c *netConf) readPlain(data []byte) bool {
	var ipam json.RawMessage
	if !json.Valid(data) || !plainObject(data, []field{
		{name: "name", text: &c.Name}, {name: "cniVersion", text: &c.CNIVersion}, {name: "ipam", raw: &ipam},
		{name: "runtimeConfig", raw: &c.RuntimeConfig}, {name: "args", raw: &c.Args}, {name: "prevResult", raw: &c.PrevResult},
		{name: "cni.dev/valid-attachments", raw: &c.ValidAttachments}, {name: "cni.dev/attachments", raw: &c.Attachments},
	}) {
		return false
	}
	if ipam == nil {
		return true
	}
	p := &ipamConf{}
	c.IPAM = p
	return plainObject(ipam, []field{
		{name: "type", text: &p.Type}, {name: "store", raw: &p.Store}, {name: "dataDir", text: &p.DataDir},
		{name: "resolvConf", text: &p.ResolvConf}, {name: "routes", raw: &p.Routes}, {name: "ranges", raw: &p.Ranges},
		{name: "rangeStart", raw: &p.RangeStart}, {name: "rangeEnd", raw: &p.RangeEnd}, {name: "subnet", raw: &p.Subnet},
		{name: "gateway", raw: &p.Gateway}, {name: "rebootLeases", raw: &p.RebootLeases}, {name: "refuseDamaged", raw: &p.RefuseDamaged},
		{name: "statusFull", raw: &p.StatusFull}, {name: "exclude", raw: &p.Exclude},
		{name: "bootIDFile", raw: &p.BootIDFile},
	})
}

// plainObject reads an object of valid JSON into fields; ok is false if it is not plain.
func plainObject(data []byte, fields []field) (ok bool) {
	at := skipSpace(data, 0)
	if data[at] != '{' {
		return false
	}
	for at = skipSpace(data, at+1); data[at] != '}'; at = skipSpace(data, at+1) {
		end := skipValue(data, at)
		key := data[at+1 : end-1]
		at = skipSpace(data, skipSpace(data, end)+1) // the colon lies between
		end = skipValue(data, at)
		if bytes.IndexByte(key, '\\') >= 0 || !put(fields, string(key), data[at:end:end]) {
			return false
		}
		if at = skipSpace(data, end); data[at] == '}' {
			break
		}
	}
	return true
}

// put sets the field of a key, if there is one. It returns false if encoding/json might do
// something else.
func put(fields []field, key string, value []byte) bool {
	for i := range fields {
		f := &fields[i]
		switch {
		case f.name != key:
			if strings.EqualFold(f.name, key) {
				return false
			}
			continue
		case f.seen:
			return false
		case f.text == nil:
			*f.raw = value
		case value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 || !utf8.Valid(value):
			return false
		default:
			*f.text = string(value[1 : len(value)-1])
		}
		f.seen = true
		return true
	}
	return true
}

// skipSpace returns the index of the first byte from i on that is no white space.
func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r' || data[i] == '\n') {
		i++
	}
	return i
}

// skipValue returns the index after the value that begins at i, in valid JSON.
func skipValue(data []byte, i int) int {
	for depth := 0; ; i++ {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		default: // a number or a word
			for i+1 < len(data) && strings.IndexByte(" \t\r\n,:]}", data[i+1]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
}
