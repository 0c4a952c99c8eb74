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
	"github.com/ipalloc/ipalloc/cidrset/clustercidr"
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
func (e *events) node(name string, err error) {
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	e.recorder.Event(ref, v1.EventTypeWarning, reason(err), err.Error())
}

// reason returns the reason of an event. The first two are those of Kubernetes.
func reason(err error) string {
	var inRange *ipalloc.Error
	var inLabelled *clustercidr.Error
	record := errors.As(err, &inRange) && inRange.Op != "allocate" || errors.As(err, &inLabelled) && inLabelled.Op != "allocate"
	switch {
	case record:
		return "CIDRRecordInvalid"
	case inRange != nil || inLabelled != nil:
		return "CIDRNotAvailable"
	}
	return "CIDRAssignmentFailed"
}
