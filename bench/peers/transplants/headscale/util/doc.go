// Package util compares what headscale's tests compare.
package util
