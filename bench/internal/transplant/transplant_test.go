package transplant

import (
	"slices"
	"strings"
	"testing"
)

const printed = `{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/x"}
{"Action":"pass","Test":"TestA/x"}
{"Action":"run","Test":"TestA/y"}
{"Action":"output","Test":"TestA/y","Output":"why"}
{"Action":"fail","Test":"TestA/y"}
{"Action":"fail","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"pass","Test":"TestB"}
{"Action":"run","Test":"TestC"}
`

// TestJudge holds the outcomes against tables that fit them and tables that don't.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		differ map[string]string
		want   []string
	}{
		{"no table", nil, []string{"TestA/y fails", "TestC fails"}},
		{"right", map[string]string{"TestA/y": "-", "TestC": "-"}, nil},
		{"a difference that vanished", map[string]string{"TestA/y": "-", "TestC": "-", "TestB": "-"}, []string{"TestB passes"}},
		{"a test that is not there", map[string]string{"TestA/y": "-", "TestC": "-", "TestA/z": "-"}, []string{"TestA/z is in the table"}},
	} {
		tally, problems := (&Suite{Differ: c.differ}).judge(events(t, []byte(printed)))
		slices.Sort(problems)
		if tally.Functions != 3 || tally.Cases != 4 || len(problems) != len(c.want) {
			t.Fatalf("%s: %+v, %q", c.name, tally, problems)
		}
		for i, p := range problems {
			if !strings.HasPrefix(p, c.want[i]) {
				t.Errorf("%s: %q, want %q", c.name, p, c.want[i])
			}
		}
	}
}

// TestEdit cuts functions and specs, and with them the imports that nothing else uses.
func TestEdit(t *testing.T) {
	const source = `package p

import (
	"fmt"
	log "example.org/logger/v2"
	"example.org/errors/v2"
)

var out = 1

func Kept() { fmt.Println(errors.New) }

func Gone() { log.Print() }

var _ = Describe("a table", 1)

var _ = Describe("all", func() {
	It("stays", 2)
	It("specs", 3)
})

func (x T) Out() {}
`
	done := map[string]bool{}
	got, err := (&Suite{
		Cut:    map[string]string{"Gone": "-", "out": "-", "Out": "-", "a table": "-", "specs": "-"},
		Import: map[string]string{"fmt": "example.org/fmt"},
	}).edit("p.go", []byte(source), done)
	if err != nil {
		t.Fatal(err)
	}
	for text, stays := range map[string]bool{"Kept": true, "Out": true, "Gone": false, "var out": false, "logger": false, "example.org/fmt": true, "a table": false, "stays": true, "specs": false, "errors/v2": true} {
		if strings.Contains(string(got), text) != stays {
			t.Errorf("%q stays: %v, want %v\n%s", text, !stays, stays, got)
		}
	}
	if !done["Gone"] || !done["out"] || !done["a table"] || !done["specs"] || done["Out"] {
		t.Errorf("cut %v", done)
	}
}

// TestEditMethods cuts the methods of a type by their names, with a pointer or without.
func TestEditMethods(t *testing.T) {
	const source = "package p\n\ntype T struct{}\n\nfunc (t *T) OutA() {}\n\nfunc (t T) OutB() {}\n\nfunc (t T) Kept() {}\n\nfunc (t Other) OutA() {}\n"
	suite := &Suite{Cut: map[string]string{"T.OutA": "-", "T.OutB": "-"}}
	got, err := suite.edit("p.go", []byte(source), map[string]bool{})
	if text := string(got); err != nil || strings.Contains(text, "T) Out") || !strings.Contains(text, "T) Kept") || !strings.Contains(text, "Other) OutA") {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestEditKeep leaves out what a file declares and the suite does not keep, but no group.
func TestEditKeep(t *testing.T) {
	const source = "package p\n\nimport \"fmt\"\n\nconst (\n\ta = 1\n\tb = 2\n)\n\ntype T struct{}\n\nfunc (t T) Kept() {}\n\nfunc (t T) Out() { fmt.Println() }\n\nfunc Out() {}\n"
	suite := &Suite{Keep: map[string][]string{"p.go": {"T", "T.Kept"}}}
	got, err := suite.edit("p.go", []byte(source), nil)
	for text, stays := range map[string]bool{"type T": true, "Kept": true, "Out": false, "fmt": false} {
		if err != nil || strings.Contains(string(got), text) != stays {
			t.Errorf("%q stays: %v, want %v; %v\n%s", text, !stays, stays, err, got)
		}
	}
	suite.Keep["p.go"] = append(suite.Keep["p.go"], "T.Gone")
	if _, err := suite.edit("p.go", []byte(source), nil); err == nil || !strings.Contains(err.Error(), "T.Gone") {
		t.Errorf("a name that is not there: %v", err)
	}
}
