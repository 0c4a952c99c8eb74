// Package selector decides whether a selector matches an object with a name and labels, such
// as a node or a namespace.
//
// # Terms
//
// A [Requirement] is one test of one label, or of the name. A [Term] is a list of
// requirements that must all hold. A [Selector] is a list of terms; at least one must
// hold. A Selector without terms selects everything and is called empty.
//
// A requirement is positive if the label must be present: In, Exists, Gt and Lt. NotIn
// and DoesNotExist also hold for an object without the label, so they tell nothing about
// the object's labels.
//
//	In            the label is there and has one of the values
//	NotIn         the label is not there, or has none of the values
//	Exists        the label is there
//	DoesNotExist  the label is not there
//	Gt, Lt        the label is there, a decimal integer, and above or below the value
//
// # Checks
//
// [Selector.Compile] refuses mistakes: an unknown operator, a key or value that no label
// can have, the wrong number of values, a term without requirements. A [Matcher] never
// fails.
//
// # Cost and concurrency
//
// A Matcher is immutable and safe for concurrent use. A match looks up each
// required label once and does not allocate.
//
// # Origin
//
// The operators, and their meaning for an absent label, follow the node selector of the
// Kubernetes API.
package selector
