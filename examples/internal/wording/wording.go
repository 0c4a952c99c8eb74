// Package wording says in words what the examples count and find.
package wording

import (
	"fmt"
	"strings"
)

// Count says how many there are of something.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// BrokenError says which promises did not hold, and when.
type BrokenError struct {
	when  string
	found []string
}

// Broken returns an *[BrokenError], or nil when nothing was found.
func Broken(when string, found []string) error {
	if len(found) == 0 {
		return nil
	}
	return &BrokenError{when, found}
}

// Error names the first ten faults: one broken rule easily shows a thousand times.
func (e *BrokenError) Error() string {
	const most = 10
	shown := e.found[:min(len(e.found), most)]
	s := "broken promise, " + e.when + ":\n\t" + strings.Join(shown, "\n\t")
	if more := len(e.found) - len(shown); more > 0 {
		s += fmt.Sprintf("\n\tand %d more", more)
	}
	return s
}
