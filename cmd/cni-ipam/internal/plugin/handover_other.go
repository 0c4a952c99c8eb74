//go:build !linux

package plugin

import "os"

// exchange reports that the system cannot swap two names in one step.
func exchange(string, string) bool { return false }

// unopened reports that the system does not say who has a file open.
func unopened(*os.File) (unopened, known bool) { return false, false }
