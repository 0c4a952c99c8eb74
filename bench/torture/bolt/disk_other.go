//go:build !linux

package main

import "errors"

var errCannot = errors.New("needs Linux")

func fullDisk(kind, dir string) (string, error) { return "", errCannot }

func fillDisk(kind, dir string) error { return errCannot }
