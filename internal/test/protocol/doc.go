// Package protocol holds models of the commit protocol of ipset, which spin searches, and a checker of single commits, which accepts the
// transitions of a model and no others. README.md has the results.
package protocol
