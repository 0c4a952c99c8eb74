package wording

import (
	"strings"
	"testing"
)

func TestBroken(t *testing.T) {
	if err := Broken("at noon", nil); err != nil {
		t.Error(err)
	}
	if got, want := Broken("at noon", []string{"a", "b"}).Error(), "broken promise, at noon:\n\ta\n\tb"; got != want {
		t.Errorf("%q", got)
	}
	got := Broken("at noon", make([]string, 13)).Error()
	if n := strings.Count(got, "\n"); n != 11 || !strings.HasSuffix(got, "\n\tand 3 more") {
		t.Errorf("%q", got)
	}
}
