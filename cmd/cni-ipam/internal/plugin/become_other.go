//go:build !linux

package plugin

import "errors"

// become would run another program in this process.
func become(string, []string, []byte) error { return errors.ErrUnsupported }
