//go:build !unix

package plugin

import (
	"os"
	"strings"
)

// readBootID reads what identifies the present boot.
func readBootID(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}
