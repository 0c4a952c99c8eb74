package refusal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// Every fault of an error is found, and a right error has none.
func TestFaults(t *testing.T) {
	right := ipalloc.Error{Package: "p", Op: "do", Field: "F", Err: ipalloc.ErrInvalid}
	for name, spoil := range map[string]func(e *ipalloc.Error) error{
		"":                  func(e *ipalloc.Error) error { return e },
		"none":              func(*ipalloc.Error) error { return nil },
		"another type":      func(e *ipalloc.Error) error { return e.Err },
		"another call":      func(e *ipalloc.Error) error { e.Op = "undo"; return e },
		"another package":   func(e *ipalloc.Error) error { e.Package = "q"; return e },
		"another sentinel":  func(e *ipalloc.Error) error { e.Err = ipalloc.ErrFull; return e },
		"no sentinel":       func(e *ipalloc.Error) error { e.Err = errors.New("x"); return e },
		"two sentinels":     func(e *ipalloc.Error) error { return fmt.Errorf("%w%.0w", e, ipalloc.ErrFull) },
		"no field":          func(e *ipalloc.Error) error { e.Field = ""; return e },
		"two lines":         func(e *ipalloc.Error) error { e.Reason = "a\nb"; return e },
		"the package twice": func(e *ipalloc.Error) error { e.Reason = "p: it"; return e },
		"words before it":   func(e *ipalloc.Error) error { return fmt.Errorf("bad: %w", e) },
	} {
		e := right
		found := faults("p", Row{Call: "Do", Err: spoil(&e), Is: ipalloc.ErrInvalid, Op: "do", Field: "F"})
		if (len(found) > 0) != (name != "") {
			t.Errorf("%s: %q", name, found)
		}
	}
	if found := faults("p", Row{Err: &right}); len(found) == 0 {
		t.Error("an error of a call that never fails is not found")
	}
}

func TestCalls(t *testing.T) {
	calls, err := callsIn(".")
	if err != nil || len(calls) != 0 {
		t.Errorf("%v, %v: nothing that is exported here fails", calls, err)
	}
	calls, err = callsIn("testdata/p")
	if got := fmt.Sprint(calls); err != nil || got != "[New T.Do G.Do]" {
		t.Errorf("%v, %v", got, err)
	}
}
