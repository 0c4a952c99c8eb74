package main

import (
	"errors"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/ipalloc/ipalloc"
)

// events writes what is wrong with a node or a ClusterCIDR as an event of it.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder

	mu   sync.Mutex
	open map[string]bool // nodes with a condition that began with an event
}

func newEvents(client kubernetes.Interface) *events {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &events{broadcaster: b, recorder: b.NewRecorder(scheme.Scheme, v1.EventSource{Component: "node-ipam-controller"})}
}

func (e *events) stop() { e.broadcaster.Shutdown() }

// node records an event. Its object is a node by name, with the name for a UID, as
// the node controllers of Kubernetes do it: kubectl describe node finds it so.
func (e *events) node(name, kind, reason, message string) {
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	e.recorder.Event(ref, kind, reason, message)
}

// began records an event of a condition of a node that begins or changes.
func (e *events) began(name, reason, message string) {
	e.mu.Lock()
	if e.open == nil {
		e.open = map[string]bool{}
	}
	e.open[name] = true
	e.mu.Unlock()
	e.node(name, v1.EventTypeWarning, reason, message)
}

// ended records an event when a condition ends that began with one, unless the node is
// gone.
func (e *events) ended(name string, there bool) {
	e.mu.Lock()
	began := e.open[name]
	delete(e.open, name)
	e.mu.Unlock()
	if began && there {
		e.node(name, v1.EventTypeNormal, conditionEnded, "what was reported last has ended")
	}
}

// entry records an event of a ClusterCIDR object.
func (e *events) entry(o *object, kind, reason, message string) {
	ref := &v1.ObjectReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
	e.recorder.Event(ref, kind, reason, shortened(message))
}

// shortened returns as much of the text of an event as the API server takes.
func shortened(text string) string {
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
	}
	return text
}

// maxMessage is the length that the API server takes.
const maxMessage = 1024

// The reasons of events of nodes. The first two are those of Kubernetes.
const (
	notAvailable     = "CIDRNotAvailable"
	assignmentFailed = "CIDRAssignmentFailed"
	recordInvalid    = "CIDRRecordInvalid"
	assigned         = "CIDRAssigned"
	conditionEnded   = "CIDRConditionEnded"
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
