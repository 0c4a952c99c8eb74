// Package protocol holds a model of the commit protocol of ipset, which spin searches. README.md
// has its results.
package protocol
