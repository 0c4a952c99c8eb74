// Package transplants runs the tests of other projects on adapters over this module.
// README.md has the results; go test ./transplants repeats them.
package transplants
