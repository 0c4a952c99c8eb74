package serviceips

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// server keeps IPAddress objects and does what a test says to the next requests.
type server struct {
	mu      sync.Mutex
	objects map[string]*networkingv1.IPAddress
	before  func(r *http.Request) bool // ends the connection before the request is looked at
	after   func(r *http.Request) bool // ends it in place of the answer
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil && s.before(r) {
		panic(http.ErrAbortHandler)
	}
	status, body := s.answer(r)
	if s.after != nil && s.after(r) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *server) answer(r *http.Request) (int, any) {
	fail := func(code int, reason metav1.StatusReason) (int, any) {
		return code, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason}
	}
	name := path.Base(r.URL.Path)
	switch r.Method {
	case http.MethodPost:
		o := &networkingv1.IPAddress{}
		if err := json.NewDecoder(r.Body).Decode(o); err != nil {
			return fail(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		}
		if s.objects[o.Name] != nil {
			return fail(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		}
		o.TypeMeta = metav1.TypeMeta{Kind: "IPAddress", APIVersion: "networking.k8s.io/v1"}
		s.objects[o.Name] = o
		return http.StatusCreated, o
	case http.MethodDelete:
		if s.objects[name] == nil {
			return fail(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		delete(s.objects, name)
		return http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}
	}
	if o := s.objects[name]; o != nil {
		return http.StatusOK, o
	}
	return fail(http.StatusNotFound, metav1.StatusReasonNotFound)
}

// put makes the object of an address of another service.
func (s *server) put(addr, service string) {
	o := newObject("default", service, netip.MustParseAddr(addr))
	o.TypeMeta = metav1.TypeMeta{Kind: "IPAddress", APIVersion: "networking.k8s.io/v1"}
	s.objects[addr] = o
}

// newAllocator returns an allocator of 10.0.0.0/28 that picks the lowest address.
func newAllocator(t *testing.T) (*Allocator, *server) {
	s := &server{objects: map[string]*networkingv1.IPAddress{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(client, servicealloc.LowestFirst())
	if err != nil {
		t.Fatal(err)
	}
	a.setRange(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/28"}},
		Status: networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue}}}})
	return a, s
}

var anyV4 = netip.IPv4Unspecified()

func wantOwner(t *testing.T, a *Allocator, addr, want string) {
	t.Helper()
	by, _, ok := a.Registry().OwnerOf(netip.MustParseAddr(addr))
	if ok != (want != "") || by != want {
		t.Errorf("%s is of %q (%v), want %q", addr, by, ok, want)
	}
	if err := a.Registry().Check(); err != nil {
		t.Error(err)
	}
}

// An address whose object exists stays taken for its service, and the next one is tried.
func TestTakeSkipsWhatExists(t *testing.T) {
	a, s := newAllocator(t)
	s.put("10.0.0.1", "native")
	s.put("10.0.0.2", "other")
	got, err := a.Take(t.Context(), "default", "web", anyV4)
	if err != nil || got.String() != "10.0.0.3" {
		t.Fatal(got, err)
	}
	wantOwner(t, a, "10.0.0.1", "default/native/IPv4")
	wantOwner(t, a, "10.0.0.2", "default/other/IPv4")
	wantOwner(t, a, "10.0.0.3", "default/web/IPv4")
	if _, err := a.Take(t.Context(), "default", "thief", netip.MustParseAddr("10.0.0.1")); !errors.Is(err, ipalloc.ErrOccupied) {
		t.Error(err)
	}
	a.addressGone(s.objects["10.0.0.1"])
	wantOwner(t, a, "10.0.0.1", "")
	if err := a.Release(t.Context(), "default", "web", got); err != nil || s.objects["10.0.0.3"] != nil {
		t.Error(err)
	}
	wantOwner(t, a, "10.0.0.3", "")
}

// After an unclear answer the object says what happened: nothing is given back that may
// exist, and nothing is kept that does not.
func TestTakeAfterAnUnclearAnswer(t *testing.T) {
	post := func(r *http.Request) bool { return r.Method == http.MethodPost }
	a, s := newAllocator(t)
	s.after = post // made, and the answer lost
	if got, err := a.Take(t.Context(), "default", "web", anyV4); err != nil || got.String() != "10.0.0.1" {
		t.Fatal(got, err)
	}
	s.after, s.before = nil, post // not made
	if got, err := a.Take(t.Context(), "default", "next", anyV4); err == nil {
		t.Fatal(got)
	}
	wantOwner(t, a, "10.0.0.2", "")
	s.after, s.before = nil, func(r *http.Request) bool { // nothing can be read either
		return r.Method == http.MethodGet
	}
	s.after = post
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // the client repeats what it reads
	defer cancel()
	if _, err := a.Take(ctx, "default", "unknown", anyV4); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	wantOwner(t, a, "10.0.0.2", "default/unknown/IPv4")
}

// A ServiceCIDR that is removed while an address of it is held drains, and goes with its
// last address.
func TestRangeGoesWithItsLastAddress(t *testing.T) {
	a, _ := newAllocator(t)
	got, err := a.Take(t.Context(), "default", "web", anyV4)
	if err != nil {
		t.Fatal(err)
	}
	gone := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	a.rangeGone(gone)
	if r := a.Registry().Ranges(); len(r) != 1 || !r[0].Draining {
		t.Fatal(r)
	}
	if _, err := a.Take(t.Context(), "default", "next", anyV4); !errors.Is(err, ipalloc.ErrFull) || !strings.Contains(err.Error(), "IPv4") {
		t.Error(err)
	}
	if err := a.Release(t.Context(), "default", "web", got); err != nil {
		t.Error(err)
	}
	if r := a.Registry().Ranges(); len(r) != 0 {
		t.Error(r)
	}
}
