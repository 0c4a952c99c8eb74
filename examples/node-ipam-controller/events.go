package main

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/ipalloc/ipalloc"
)

// events writes what is wrong with a node as an event of it.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

func newEvents(client kubernetes.Interface) *events {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &events{b, b.NewRecorder(scheme.Scheme, v1.EventSource{Component: "node-ipam-controller"})}
}

func (e *events) stop() { e.broadcaster.Shutdown() }

// node records an event. Its object is a node by name, with the name for a UID, as
// the node controllers of Kubernetes do it: kubectl describe node finds it so.
func (e *events) node(name, kind, reason, message string) {
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	e.recorder.Event(ref, kind, reason, message)
}

// The reasons of events. The first two are those of Kubernetes.
const (
	notAvailable     = "CIDRNotAvailable"
	assignmentFailed = "CIDRAssignmentFailed"
	recordInvalid    = "CIDRRecordInvalid"
	assigned         = "CIDRAssigned"
)

// reason returns the reason of an event. The errors of package nodeipam are those of
// Allocate and those of records.
func reason(err error) string {
	var e *ipalloc.Error
	switch {
	case !errors.As(err, &e) || e.Package != "nodeipam":
		return assignmentFailed
	case e.Op == "allocate":
		return notAvailable
	}
	return recordInvalid
}
