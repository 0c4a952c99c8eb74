package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every alert has a paragraph in the runbook with a command, and every command in it is one of this program with such flags and arguments.
func TestRunbook(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../metrics/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	_, runbook, _ := strings.Cut(read("README.md"), "\n## Runbook\n")
	of := map[string]string{}
	for _, paragraph := range strings.Split(runbook, "\n### ")[1:] {
		name, text, _ := strings.Cut(paragraph, "\n")
		of[name] = text
	}
	rules := read("alerts.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 8 || len(alerts) != len(of) {
		t.Errorf("%d alerts and %d paragraphs", len(alerts), len(of))
	}
	command := regexp.MustCompile("`ipamctl ([^`]+)`")
	for _, a := range alerts {
		if !strings.Contains(rules, "runbook_url: 'metrics/README.md#"+strings.ToLower(a[1])+"'") {
			t.Errorf("%s has no runbook_url", a[1])
		}
		commands := command.FindAllStringSubmatch(of[a[1]], -1)
		if len(commands) == 0 && a[1] != "IpallocServiceConflict" { // the registry of services is in no store of ipamctl
			t.Errorf("%s: no command", a[1])
		}
		for _, c := range commands {
			if err := parses(strings.Fields(c[1])); err != nil {
				t.Errorf("%s: %s: %v", a[1], c[1], err)
			}
		}
	}
	for _, line := range []string{"pool shwo POOL", "pool show", "gc --in-us LIST", "map POOL --fit x", "pool list POOL", "check --max -1"} {
		if parses(strings.Fields(line)) == nil {
			t.Errorf("%s is taken for a command", line)
		}
	}
}

// parses reports what is wrong with a command line, without running it.
func parses(args []string) error {
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}
	c, rest, err := a.root().Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if c.HasSubCommands() {
		return fail(exitUsage, "no command of %s", c.Name())
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	return checkNumbers(c.Flags())
}
