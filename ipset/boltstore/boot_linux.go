package boltstore

import (
	"os"
	"strings"
)

// bootID identifies the present start of the machine, empty if that can't be told.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) > 64 {
		return ""
	}
	return strings.TrimSpace(string(b))
}
