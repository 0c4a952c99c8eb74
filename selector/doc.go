// Package selector decides whether a thing with a name and labels is one that a
// selector asks for: a node by its labels, a namespace by its own.
//
// # Terms
//
// A [Requirement] asks one thing of one label, or of the name. A [Term] is a list of
// requirements that must all hold. A [Selector] is a list of terms; at least one must
// hold; without any term it selects everything and is called empty.
//
// A requirement is positive if it needs the label to be there: In, Exists, Gt and
// Lt. NotIn and DoesNotExist also hold for a thing that has no such label at all,
// so they say nothing about the labels that it has.
//
//	In            the label is there and has one of the values
//	NotIn         the label is not there, or has none of the values
//	Exists        the label is there
//	DoesNotExist  the label is not there
//	Gt, Lt        the label is there, a decimal integer, and above or below the value
//
// # Checks
//
// [Selector.Compile] refuses what can only be a mistake: an unknown operator, a key or value
// that no label can have, the wrong number of values, a term that asks for
// nothing. A [Matcher] never fails.
//
// # Cost and concurrency
//
// A Matcher is immutable and safe for concurrent use. A match looks up each
// required label once and does not allocate.
//
// # Origin
//
// The operators are those of the node selector of the Kubernetes API, with the
// meaning they have there, also for the absent label.
package selector
