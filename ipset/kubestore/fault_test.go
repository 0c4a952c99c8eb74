package kubestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// faults counts the requests of a store and makes up failures.
type faults struct {
	next http.RoundTripper

	mu   sync.Mutex
	n    int
	fail func(n int, r *http.Request) fault // decides about request n; nil passes all on
	seen map[string]int                     // requests by method
	late sync.WaitGroup
}

// fault is what becomes of a request.
type fault int

const (
	none      fault = iota
	unsent          // the request is lost
	unheard         // the answer is lost
	delayed         // the answer is lost, and the request is carried out later
	broken          // the request is carried out, and the answer is an error of the server
	refused         // the server has no time
	forbidden       // the server's roles are not loaded yet
	strayed         // a proxy on the way answers 404
	missed          // the API server answers once that there is no such object
	emptied         // a proxy on the way answers {}
	login           // a proxy on the way answers with a page
	vying           // others use the quota of the namespace up at the same time; nothing is created
	numFault  = iota
	denied    = numFault // the server refuses for good
)

func (f fault) String() string {
	return [...]string{"none", "request lost", "answer lost", "carried out late", "carried out, 500", "429", "403", "404 of a proxy",
		"404 once", "an empty object", "a page", "409 of a quota"}[f]
}

var errLost = errors.New("the connection broke")

// use puts the faults into a configuration.
func (f *faults) use(c *rest.Config) {
	f.seen = make(map[string]int)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		f.next = next
		return f
	})
}

func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.n++
	f.seen[r.Method]++
	what := none
	if f.fail != nil {
		what = f.fail(f.n, r)
	}
	f.mu.Unlock()
	switch what {
	case unsent:
		return nil, errLost
	case unheard:
		if resp, err := f.next.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
		return nil, errLost
	case broken:
		if resp, err := f.next.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
		return answer(r, http.StatusInternalServerError), nil
	case refused:
		return answer(r, http.StatusTooManyRequests), nil
	case forbidden:
		return answer(r, http.StatusForbidden), nil
	case strayed:
		return answerWith(r, http.StatusNotFound, "default backend - 404"), nil
	case missed:
		if name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; r.Method == http.MethodGet && name != resource {
			return answerWith(r, http.StatusNotFound, fmt.Sprintf(`{"kind":"Status","code":404,"reason":"NotFound","details":{"kind":%q,"name":%q}}`, resource, name)), nil
		}
	case emptied:
		return answerWith(r, http.StatusOK, "{}"), nil
	case denied:
		return answer(r, http.StatusBadRequest), nil
	case login:
		return answerWith(r, http.StatusOK, "<html>Who are you?</html>"), nil
	case vying:
		if r.Method == http.MethodPost {
			return answerWith(r, http.StatusConflict, `{"kind":"Status","code":409,"reason":"Conflict","details":{"kind":"resourcequotas","name":"q"}}`), nil
		}
	case delayed:
		f.sendLater(r)
		return nil, errLost
	}
	return f.next.RoundTrip(r)
}

// sendLater sends a request after its sender has given it up.
func (f *faults) sendLater(r *http.Request) {
	later := r.Clone(context.Background())
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body)
		later.Body = io.NopCloser(bytes.NewReader(body))
	}
	f.late.Add(1)
	go func() {
		defer f.late.Done()
		time.Sleep(15 * time.Millisecond)
		if resp, err := f.next.RoundTrip(later); err == nil {
			_ = resp.Body.Close()
		}
	}()
}

func answer(r *http.Request, code int) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","code":%d,"reason":"Injected","message":"made up"}`, code)
	return answerWith(r, code, body)
}

func answerWith(r *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{}, Request: r,
		Body: io.NopCloser(bytes.NewReader([]byte(body)))}
}

func put(key, value string, expect uint64) store.Op {
	return store.Op{Kind: store.Put, Key: key, Value: value, Expect: expect}
}

// contents returns the records of a store.
func contents(t testing.TB, s *Store) map[string]string {
	t.Helper()
	recs, _, err := s.List(limited(t), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, r := range recs {
		out[r.Key] = r.Value
	}
	return out
}

// work makes commits, each of which depends on those before it, and returns what the store must hold then.
func work(t *testing.T, s *Store, commits int) map[string]string {
	t.Helper()
	ctx := limited(t)
	want := make(map[string]string)
	last := uint64(0)
	for i := range commits {
		one, v := fmt.Sprint("k", i), fmt.Sprint("v", i)
		rev, err := s.Commit(ctx, []store.Op{put("chain", v, last), put(one, v, 0)})
		if err != nil || rev != uint64(i)+1 {
			t.Fatalf("commit %d: revision %d, %v", i, rev, err)
		}
		last, want["chain"], want[one] = rev, v, v
		if i%3 == 1 {
			if _, err := s.Commit(ctx, []store.Op{put("chain", "wrong", last-1)}); !errors.Is(err, ipalloc.ErrConflict) {
				t.Fatalf("commit on an old revision: %v", err)
			}
		}
		if recs, err := s.Get(ctx, nil, one, "chain"); err != nil || recs[0].Value != v || recs[1].Rev != rev {
			t.Fatalf("after commit %d: %v, %v", i, recs, err)
		}
	}
	return want
}

// Every request of a store fails once, in every way: no commit is lost, made twice or reported wrongly.
func TestFaultAtEveryRequest(t *testing.T) {
	commits := 12
	if testing.Short() {
		commits = 4
	}
	for what := none + 1; what < numFault; what++ {
		t.Run(what.String(), func(t *testing.T) {
			for k := 1; ; k++ {
				f := &faults{}
				fail := func(n int, _ *http.Request) fault {
					if n == k {
						return what
					}
					return none
				}
				if what < forbidden {
					f.fail = fail
				}
				name := newName()
				s := openAt(t, name, Options{Slots: minSlots}, f.use)
				if what >= forbidden { // Open takes these for the answer of the place that it was told
					f.mu.Lock()
					f.fail, f.n = fail, 0
					f.mu.Unlock()
				}
				want := work(t, s, commits)
				s.settleSnapshot() // which sends the last requests
				f.late.Wait()
				if got := contents(t, openAt(t, name, Options{NoCreate: true})); !maps.Equal(got, want) {
					t.Fatalf("fault at request %d: the store holds %v, want %v", k, got, want)
				}
				f.mu.Lock()
				met := f.n >= k
				f.mu.Unlock()
				if !met {
					return
				}
			}
		})
	}
}

// A commit is one write, and a read is one read, until half of the log is written.
func TestRequests(t *testing.T) {
	f := &faults{}
	s := openAt(t, newName(), Options{Slots: 64}, f.use)
	s.client.quiet = time.Hour
	ctx := limited(t)
	for _, tt := range []struct {
		what      string
		do        func() error
		put, get  int
		wantError error
	}{
		{"commit", func() error { _, err := s.Commit(ctx, []store.Op{put("a", "1", 0), put("b", "1", 0)}); return err }, 1, 0, nil},
		{"commit on a revision", func() error { _, err := s.Commit(ctx, []store.Op{put("a", "2", 1)}); return err }, 1, 0, nil},
		{"guards", func() error { _, err := s.Commit(ctx, []store.Op{{Key: "b", Expect: 1}}); return err }, 0, 1, nil},
		{"conflict", func() error { _, err := s.Commit(ctx, []store.Op{put("a", "3", 1)}); return err }, 0, 1, ipalloc.ErrConflict},
		{"get", func() error { _, err := s.Get(ctx, nil, "a", "b", "c"); return err }, 0, 1, nil},
		{"list", func() error { _, _, err := s.List(ctx, store.Range{}); return err }, 0, 1, nil},
	} {
		f.mu.Lock()
		clear(f.seen)
		f.mu.Unlock()
		err := tt.do()
		if !errors.Is(err, tt.wantError) {
			t.Errorf("%s: %v", tt.what, err)
		}
		want := map[string]int{http.MethodPut: tt.put, http.MethodGet: tt.get}
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
		f.mu.Lock()
		if !maps.Equal(f.seen, want) {
			t.Errorf("%s: requests %v, want %v", tt.what, f.seen, want)
		}
		f.mu.Unlock()
	}
}

// Callers that wait at the same time share writes: 256 commits of 64 callers take far fewer than 256.
func TestCallersShareWrites(t *testing.T) {
	f := &faults{}
	s := openAt(t, newName(), Options{}, f.use)
	f.mu.Lock()
	clear(f.seen)
	f.mu.Unlock()
	const callers, each = 64, 4
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := range each {
				if _, err := s.Commit(limited(t), []store.Op{put(fmt.Sprintf("c%d-%d", c, i), "", 0)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := len(contents(t, s)); n != callers*each {
		t.Errorf("%d records", n)
	}
	if n := f.seen[http.MethodPut]; n > callers*each/4 {
		t.Errorf("%d writes", n)
	}
}

// A commit that was not in the request whose outcome is unknown was not made, and says so.
func TestUnsentOutcome(t *testing.T) {
	lost := unknown(errLost)
	if err := notMade(lost); !errors.Is(lost, ipalloc.ErrUnknownOutcome) || errors.Is(err, ipalloc.ErrUnknownOutcome) || !errors.Is(err, errLost) || !store.Retryable(err) {
		t.Error(err)
	}
	if err := failure("commit", errLost); notMade(err) != err {
		t.Error(err)
	}
}

// A commit whose answers are all lost has an unknown outcome if its request was sent; it is made once at most, and a store
// that continues agrees with all others about it.
func TestUnknownOutcome(t *testing.T) {
	for what, made := range map[fault]bool{unsent: false, unheard: true} {
		f := &faults{}
		name := newName()
		s := openAt(t, name, Options{Slots: minSlots}, f.use)
		f.mu.Lock()
		f.fail = func(_ int, r *http.Request) fault {
			if r.Method == http.MethodPut || r.Method == http.MethodGet && !made {
				return what
			}
			return none
		}
		f.mu.Unlock()
		limit := time.Minute
		if !made { // no request gets through
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(limited(t), limit)
		_, err := s.Commit(ctx, []store.Op{put("a", "1", 0)})
		cancel()
		if made && err != nil { // the second request finds the first one's commit
			t.Errorf("%v: %v", what, err)
		}
		if !made && (!errors.Is(err, ipalloc.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) || !store.Retryable(err)) {
			t.Errorf("%v: %v", what, err)
		}
		f.mu.Lock()
		f.fail = nil
		f.mu.Unlock()
		if _, err := s.Commit(limited(t), []store.Op{put("b", "1", 0)}); err != nil {
			t.Errorf("%v: the next commit: %v", what, err)
		}
		if here, there := contents(t, s), contents(t, openAt(t, name, Options{})); !maps.Equal(here, there) {
			t.Errorf("%v: the store shows %v, another process %v", what, here, there)
		}
	}
}
