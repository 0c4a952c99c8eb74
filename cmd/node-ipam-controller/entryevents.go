package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
)

// The reasons of events of ClusterCIDR objects.
const (
	entryRefused     = "ClusterCIDRRefused"
	entryFull        = "ClusterCIDRFull"
	entryTerminating = "ClusterCIDRTerminating"
	entryReady       = "ClusterCIDRReady"
	entryReleased    = "ClusterCIDRReleased"
)

// entryCondition is what an operator should know of an object; the zero value is an
// object in force with free CIDRs.
type entryCondition struct{ reason, message string }

// entryEvents writes an event of an object when its condition begins, changes or ends.
// The status of an object holds its last condition, so another leader does not write the
// event again.
type entryEvents struct {
	write     func(o *object, kind, reason, message string) // nil: no events
	successes bool                                          // also of an object that comes into force
	last      map[types.UID]entryCondition
}

// see compares the condition of an object with the one before: of the last look or, at
// the first one, of the status that it had.
func (e *entryEvents) see(o *object, status entryStatus) {
	if e.write == nil {
		return
	}
	if e.last == nil {
		e.last = map[types.UID]entryCondition{}
	}
	before, seen := e.last[o.GetUID()]
	if !seen {
		before, seen = conditionOf(o.status)
	}
	now, _ := conditionOf(status)
	e.last[o.GetUID()] = now
	switch {
	case now == before && (seen || !e.successes):
	case now.reason == "" && before.reason != "":
		e.write(o, v1.EventTypeNormal, entryReady, "in force and with free CIDRs again")
	case now.reason == "":
		e.write(o, v1.EventTypeNormal, entryReady, "in force")
	case now.reason == entryTerminating:
		e.write(o, v1.EventTypeNormal, now.reason, now.message)
	default:
		e.write(o, v1.EventTypeWarning, now.reason, now.message)
	}
}

// released is called when the finalizer of a deleted object has been taken away.
func (e *entryEvents) released(o *object) {
	if e.write != nil {
		e.write(o, v1.EventTypeNormal, entryReleased, "no node has CIDRs of it any more")
	}
	delete(e.last, o.GetUID())
}

// forget drops what is remembered of objects that are gone.
func (e *entryEvents) forget(objects []*object) {
	there := map[types.UID]bool{}
	for _, o := range objects {
		there[o.GetUID()] = true
	}
	for uid := range e.last {
		if !there[uid] {
			delete(e.last, uid)
		}
	}
}

// conditionOf reads the condition from a status; ok is false if it has none.
func conditionOf(s entryStatus) (c entryCondition, ok bool) {
	ready := meta.FindStatusCondition(s.Conditions, "Ready")
	if ready == nil {
		return c, false
	}
	switch ready.Reason {
	case "Refused":
		return entryCondition{entryRefused, ready.Message}, true
	case "Terminating":
		return entryCondition{entryTerminating, ready.Message}, true
	}
	for i, p := range []*poolCounts{s.IPv4, s.IPv6} {
		if p != nil && p.Free == 0 {
			family := []string{"ipv4", "ipv6"}[i]
			return entryCondition{entryFull, fmt.Sprintf("none of %d CIDRs of %s is free; nodes that only this object serves get none", p.Capacity, family)}, true
		}
	}
	return c, true
}
