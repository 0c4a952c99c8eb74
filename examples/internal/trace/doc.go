// Package trace reads what happened in a cluster, for the examples to replay: its nodes, its pods,
// and which pod came and went when, and where.
//
// A trace is a CSV file with a header that names its columns; columns that nobody asks for are passed
// over. A fault in one is an [Error] with file, line and column. A small trace of each kind is built
// in: forty machines of a small company, and one day of their pods.
package trace
