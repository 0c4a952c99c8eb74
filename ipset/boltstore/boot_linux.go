package boltstore

import (
	"os"
	"strings"
	"sync"
)

// bootID identifies the present start of the machine, empty if that can't be told.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) > 64 {
		return ""
	}
	return strings.TrimSpace(string(b))
})
