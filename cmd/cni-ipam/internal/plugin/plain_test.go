package plugin

import (
	"encoding/json"
	"reflect"
	"testing"
)

// plainLikeJSON checks that what readPlain accepts is what encoding/json reads.
func plainLikeJSON(t *testing.T, data []byte) (plain bool) {
	t.Helper()
	var got, want netConf
	if !got.readPlain(data) {
		return false
	}
	if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n%+v %+v\nencoding/json: %+v %+v, %v", data, got, got.IPAM, want, want.IPAM, err)
	}
	return true
}

var confs = []struct {
	text  string
	plain bool
}{
	{`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"}]]}}`, true},
	{" {\n\t\"name\" : \"n\" , \"x\" : [ 1 , {\"a\":\"}\\\"\"} ] , \"ipam\" : { } , \"args\" : null }\n", true},
	{`{"name":"ä","n":-1.5e3,"b":true,"prevResult":{"a":[]},"runtimeConfig":7}`, true},
	{`{}`, true},
	{`{"ipam":{"dataDir":"/x","store":"etcd://a/b","exclude":[],"gateway":null}}`, true},
	{`{"name":"a\u0062"}`, false},
	{"{\"name\":\"\xff\"}", false},
	{`{"Name":"a"}`, false},
	{`{"name":"a","name":"b"}`, false},
	{`{"args":{},"args":null}`, false},
	{`{"na\u006de":"a"}`, false},
	{`{"name":null}`, false},
	{`{"name":7}`, false},
	{`{"ipam":null}`, false},
	{`{"ipam":[]}`, false},
	{`{"ipam":{"dataDir":7}}`, false},
	{`{"ipam":{"bootIdFile":"x"}}`, false},
	{"{\"ipam\":{\"\u017ftore\":1}}", false},
	{`[]`, false}, {`7`, false}, {`""`, false}, {``, false}, {` `, false}, {`{`, false}, {`{"a"}`, false}, {`{} {}`, false},
}

func TestPlainConf(t *testing.T) {
	for _, c := range confs {
		if plain := plainLikeJSON(t, []byte(c.text)); plain != c.plain {
			t.Errorf("%s: plain %t", c.text, plain)
		}
	}
}

// FuzzPlainConf compares readPlain with encoding/json.
func FuzzPlainConf(f *testing.F) {
	for _, c := range confs {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { plainLikeJSON(t, data) })
}
