// Package promise words what an example found to be broken.
package promise

import (
	"fmt"
	"strings"
)

// Error says which promises did not hold, and when.
type Error struct {
	when  string
	found []string
}

// Broken returns an *[Error], or nil when nothing was found.
func Broken(when string, found []string) error {
	if len(found) == 0 {
		return nil
	}
	return &Error{when, found}
}

// Error names the first ten faults: one broken rule easily shows a thousand times.
func (e *Error) Error() string {
	const most = 10
	shown := e.found[:min(len(e.found), most)]
	s := "broken promise, " + e.when + ":\n\t" + strings.Join(shown, "\n\t")
	if more := len(e.found) - len(shown); more > 0 {
		s += fmt.Sprintf("\n\tand %d more", more)
	}
	return s
}
