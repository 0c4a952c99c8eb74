// Package protocol holds a model of the commit protocol of ipset, which spin searches. README.md says what it shows.
package protocol
