// Package backend stands for Calico's datastore: it keeps nodes, and shows the blocks of an engine of ours
// as Calico's records.
package backend
