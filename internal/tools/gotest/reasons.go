package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// reason is an accepted reason to skip a test.
type reason struct {
	step string // the step that runs the test; "-" for none
	text *regexp.Regexp
}

type reasons []reason

// parseReasons reads a file with a reason on each line: a step, then the text, in
// which * stands for any text. Empty lines and lines that begin with # are comments.
func parseReasons(text string) (reasons, error) {
	all := reasons{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		step, pattern, found := strings.Cut(line, " ")
		if !found {
			return nil, fmt.Errorf("line %d: %q is not a step and a reason", i+1, line)
		}
		pattern = regexp.QuoteMeta(strings.TrimSpace(pattern))
		pattern = "^" + strings.ReplaceAll(pattern, `\*`, ".*") + "$"
		all = append(all, reason{step, regexp.MustCompile(pattern)})
	}
	return all, nil
}

// find returns the reason that accepts the text in a step, or nil.
func (all reasons) find(step, text string) *reason {
	for i := range all {
		if r := &all[i]; r.step != step && r.text.MatchString(text) {
			return r
		}
	}
	return nil
}

// check returns an error for each test that may not be skipped in a step.
func (all reasons) check(step string, skipped []skip) error {
	var errs []error
	for _, s := range skipped {
		if all.find(step, s.reason) == nil {
			errs = append(errs, fmt.Errorf("%s: %s is skipped for a reason that CI_SKIPS does not accept in this step: %q", s.pkg, s.test, s.reason))
		}
	}
	return errors.Join(errs...)
}

// logged matches the first line of a message of a test.
var logged = regexp.MustCompile(`^\s+[^\s:]+\.go:\d+: (.*)$`)

// reasonIn returns the first line of the last message that a test has logged, or "".
func reasonIn(output *strings.Builder) (text string) {
	if output == nil {
		return ""
	}
	for _, line := range strings.Split(output.String(), "\n") {
		if m := logged.FindStringSubmatch(line); m != nil {
			text = strings.TrimSpace(m[1])
		}
	}
	return text
}
