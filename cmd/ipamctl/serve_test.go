package main

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// newPage returns the handler of a page below /key/, of a store that fails the test if it is written to.
func newPage(t *testing.T) http.Handler {
	t.Helper()
	db := store.NewMemory()
	e := newEngine(t, db)
	cluster(t)(e)
	if err := e.AddPool(t.Context(), alloc.Pool{Name: "tagged", Prefix: netip.MustParsePrefix("10.7.0.0/24"), Manual: true, Index: []string{"team"}}); err != nil {
		t.Fatal(err)
	}
	team := must[alloc.Attributes](t)(alloc.NewAttributes(map[string]string{"team": "red"}))
	must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 1, Pools: []string{"tagged"}, Handle: "tagged-0", Attributes: team}))
	fillOthers(t, db)
	at := readOnly{&unwritten{db, t}}
	p := &page{app: &app{now: func() time.Time { return noon }}, told: make(chan struct{}), at: at, e: newEngine(t, at)}
	p.tell(nil, changeView{Change: "assigned", What: "10.1.0.1"})
	return p.handler("/key/")
}

// unwritten is a store of which a commit is an error of the test.
type unwritten struct {
	store.Store
	t *testing.T
}

func (u *unwritten) Commit(context.Context, []store.Op) (uint64, error) {
	u.t.Error("the page writes to the store")
	return 0, errors.New("written")
}

// ask asks the page for a path.
func ask(t *testing.T, h http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8000"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The page answers what the commands do, and what cannot be is an error in words.
func TestPageAnswers(t *testing.T) {
	h := newPage(t)
	for _, c := range []struct {
		path   string
		status int
		has    string
	}{
		{"/key/", 200, `<script type="module" src="page.js">`}, {"/key/page.js", 200, "EventSource"}, {"/key/page.css", 200, "prefers-color-scheme"},
		{"/key/map.css", 200, ".u8{fill:"}, {"/key/pools", 200, `"name":"pods6"`}, {"/key/changes", 200, `"change":"assigned"`},
		{"/key/blocks?in=10.1.0.0/24", 200, `"owner":"host:b"`}, {"/key/blocks?in=x", 400, "neither a prefix nor an address"},
		{"/key/addresses?in=10.1.0.32/28", 200, `"handle":"batch"`}, {"/key/addresses?in=10.9.0.0/28", 200, `{"rows":[]}`},
		{"/key/find?q=10.1.0.48", 200, `"state":"held"`}, {"/key/find?q=guest", 200, `"host":"host:c"`}, {"/key/find?q=a", 200, `"handle":"web-0"`},
		{"/key/find?q=lb", 200, `"prefix":"192.0.2.0/27"`}, {"/key/find?q=10.0.0.0/8", 200, `"name":"pods"`}, {"/key/find?q=team=red", 200, `"handle":"tagged-0"`}, {"/key/find?q=team=blue", 404, "attribute"},
		{"/key/find?q=nobody", 404, "is no address, pool, prefix, number, handle, owner, host"}, {"/key/find?q=198.51.100.1", 404, "in no pool"},
		{"/key/others", 200, `{"kind":"prefix","what":"10.96.0.0/24","is":"net-a of 10.96.0.0/16"}`}, {"/key/others", 200, `{"kind":"number","what":"vlan 100","is":"tenant-a"}`},
		{"/key/others", 200, `"what":"net c1/eth0"`}, {"/key/others", 200, `"kind":"limit"`}, {"/key/find?q=net-a", 200, `"what":"10.96.0.0/24"`}, {"/key/find?q=10.96.0.9", 200, `"kind":"prefix"`},
		{"/key/find?q=10.98.0.2", 200, `"kind":"attachment"`}, {"/key/find?q=10.1.0.120", 200, `"handle":"kept/printer"`}, {"/key/map.svg?pool=10.96.0.0/16&width=300", 200, "net-a"},
		{"/key/map.svg?pool=pods&width=300", 200, "<svg "}, {"/key/map.svg?pool=none", 404, "there is no pool"}, {"/key/map.svg?pool=pods&order=x", 400, "--order x"},
		{"/key/none", 404, ""}, {"/pools", 404, ""}, {"/", 404, ""}, {"/other/pools", 404, ""},
	} {
		w := ask(t, h, c.path, nil)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
	w := ask(t, h, "/key/map.svg?pool=pods&in=10.1.0.32/27&order=rows", nil)
	if err := xml.Unmarshal(w.Body.Bytes(), new(struct{ XMLName xml.Name })); err != nil || !strings.Contains(w.Body.String(), "10.1.0.51/32 borrowed") {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// A request of another page, whose name was made to lead to this machine, is refused, and so is every method that could change something.
func TestPageIsForThisMachine(t *testing.T) {
	h := newPage(t)
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"localhost":       {func(r *http.Request) { r.Host = "localhost:8000" }, 200},
		"forwarded port":  {func(r *http.Request) { r.Host = "127.0.0.1:9999" }, 200},
		"IPv6":            {func(r *http.Request) { r.Host = "[::1]:8000" }, 200},
		"another name":    {func(r *http.Request) { r.Host = "evil.example:8000" }, 421},
		"a name like it":  {func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, 421},
		"another address": {func(r *http.Request) { r.Host = "192.0.2.1:8000" }, 421},
		"no name":         {func(r *http.Request) { r.Host = "" }, 421},
		"POST":            {func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"DELETE":          {func(r *http.Request) { r.Method = http.MethodDelete }, 405},
		"HEAD":            {func(r *http.Request) { r.Method = http.MethodHead }, 405},
		"another site": {func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "no-cors")
		}, 405},
	} {
		w := ask(t, h, "/key/pools", c.change)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
		if policy := w.Header().Get("Content-Security-Policy"); w.Code == 200 && !strings.HasPrefix(policy, "default-src 'self';") {
			t.Errorf("%s: the policy is %q", name, policy)
		}
	}
	for _, file := range []string{"index.html", "page.css", "page.js"} {
		text, err := pageFiles.ReadFile("page/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`(?i)(https?:)?//[a-z]|innerHTML|style=|onclick="|eval\(`).FindString(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")); found != "" {
			t.Errorf("%s has %q", file, found)
		}
	}
	if _, err := (readOnly{store.NewMemory()}).Commit(t.Context(), nil); !errors.Is(err, ipalloc.ErrMismatch) {
		t.Error(err)
	}
	for _, at := range []string{"0.0.0.0:0", "192.0.2.1:80", ":8000", "example.com:80", "[::]:0"} {
		if status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": "bolt:///none"}, "serve", "--listen", at); status != exitUsage {
			t.Errorf("%s: status %d, %s", at, status, stderr)
		}
	}
}

// vanished is a browser to which the second line cannot be written.
type vanished struct {
	*httptest.ResponseRecorder
	lines int
}

func (*vanished) SetWriteDeadline(time.Time) error { return nil }

func (v *vanished) Write(p []byte) (int, error) {
	if v.lines++; v.lines > 1 {
		return 0, errors.New("broken pipe")
	}
	return v.ResponseRecorder.Write(p)
}

// A browser that is gone without a word does not count as one that waits, although nothing changes.
func TestPageFindsWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{told: make(chan struct{})}
		p.events(&vanished{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		if p.guests != 0 {
			t.Errorf("%d browsers wait", p.guests)
		}
	})
}

// serving runs serve and returns the name of its page.
func serving(t *testing.T, name string) string {
	t.Helper()
	r, w := io.Pipe()
	a := &app{stdin: strings.NewReader(""), stdout: w, stderr: io.Discard, getenv: func(string) string { return name }, now: func() time.Time { return noon }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- a.run(ctx, []string{"serve", "--interval", "50ms"}) }()
	t.Cleanup(func() {
		cancel()
		if status := <-done; status != exitOK {
			t.Errorf("serve ends with %d", status)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// What another process changes is told, of a file and of a store that delivers its changes, and the store is as it was.
func TestPageIsLive(t *testing.T) {
	for kind, name := range map[string]string{"bolt": newBolt(t, cluster(t)), "sqlite": newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")} {
		url := serving(t, name)
		r, err := http.Get(url + "events")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		lines := bufio.NewScanner(r.Body)
		revision := func() (now struct {
			Revision int
			Fault    string
		}) {
			for lines.Scan() {
				if text, found := strings.CutPrefix(lines.Text(), "data: "); found {
					if err := json.Unmarshal([]byte(text), &now); err != nil || now.Fault != "" {
						t.Fatal(kind, err, now.Fault)
					}
					return now
				}
			}
			t.Fatal(kind, lines.Err())
			return now
		}
		for revision().Revision == 0 { // the state at the beginning is still being read
		}
		before := contents(t, name)
		if got := contents(t, name); got != before {
			t.Errorf("%s: the store has changed", kind)
		}
		if status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": name}, "assign", "--host", "z", "--handle", "live"); status != exitOK {
			t.Fatal(kind, stderr)
		}
		for found := false; !found; {
			revision()
			page, err := http.Get(url + "find?q=live")
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(page.Body)
			page.Body.Close()
			found = strings.Contains(string(text), "host:z")
		}
	}
}

// The page in a browser: pools, a click into the map, a block, an address, a search, what another process changes; on a phone and in the dark.
func TestPageInChromium(t *testing.T) {
	b := newBrowser(t)
	name := newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")
	url := serving(t, name)
	b.screen(1000, 700, false)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(`document.querySelectorAll('table a').length >= 3 && live.textContent === 'live'`)
	if text := b.eval(`main.innerText`); !strings.Contains(text, "10.1.0.0/24") || !strings.Contains(text, "pods6") {
		t.Error(text)
	}
	if status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": name}, "assign", "--host", "z", "--handle", "new", "--pool", "pods"); status != exitOK {
		t.Fatal(stderr)
	}
	b.until(`main.innerText.includes('block claimed') && main.innerText.includes('new on host:z')`)
	b.picture("docs/page.png")

	b.eval(`[...document.querySelectorAll('a')].find(a => a.textContent === 'pods').click()`)
	b.until(`document.querySelector('.map svg path title') && main.innerText.includes('10.1.0.32/28')`)
	if n := b.eval(`getComputedStyle(document.querySelector('.map .u8')).fill`); n != "rgb(0, 63, 107)" {
		t.Errorf("a used cell is %s", n)
	}
	b.picture("docs/page-pool.png")
	// A click on a free part of the pool shows that part, a click on an address who has it.
	b.eval(`[...document.querySelectorAll('.map title')].find(t => t.textContent.startsWith('10.1.0.0/28 free')).parentNode.dispatchEvent(new MouseEvent('click', {bubbles: true}))`)
	b.until(`document.querySelector('h1')?.textContent.includes('10.1.0.0/28')`)
	b.eval(`history.back()`)
	b.until(`main.dataset.shown === 'pool/pods' && document.querySelector('.map title')`)
	b.eval(`[...document.querySelectorAll('.map title')].find(t => t.textContent.startsWith('10.1.0.51/32 ') || t.textContent.startsWith('10.1.0.48/32 ')).parentNode.dispatchEvent(new MouseEvent('click', {bubbles: true}))`)
	b.until(`main.dataset.shown.startsWith('find/10.1.0.') && main.innerText.includes('host:a')`)
	b.eval(`word.value = 'guest'; document.querySelector('form').requestSubmit()`)
	b.until(`main.dataset.shown === 'find/guest' && main.innerText.includes('host:c')`)
	b.eval(`word.value = '<img src=x>'; document.querySelector('form').requestSubmit()`)
	b.until(`document.querySelector('[role=alert]')?.textContent.includes('<img src=x>')`)
	for i := len(b.said) - 1; i >= 0; i-- { // a search without an answer is one that the page shows
		if strings.Contains(b.said[i], "status of 404") {
			b.said = append(b.said[:i], b.said[i+1:]...)
		}
	}

	b.screen(390, 800, true)
	for _, view := range []string{"", "pool/pods", "pool/pods6", "find/batch"} {
		b.eval(`location.hash = '#` + view + `'`)
		b.until(`main.dataset.shown === '` + view + `' && document.querySelector('table')`)
		if n := b.eval(`document.documentElement.scrollWidth`); n != "390" {
			t.Errorf("%q is %s pixels wide on a phone of 390", view, n)
		}
		if ground := b.eval(`getComputedStyle(document.body).backgroundColor`); ground != "rgb(23, 25, 28)" {
			t.Errorf("in the dark the page is %s", ground)
		}
		if view == "pool/pods" {
			b.picture("docs/page-phone.png")
		}
	}
	if len(b.said) > 0 {
		t.Errorf("the browser says\n%s", strings.Join(b.said, "\n"))
	}
}

// Over a slow line and beside a store that never rests the page shows what was asked for, and keeps the focus while rows change.
func TestPageBesideABusyStore(t *testing.T) {
	b := newBrowser(t)
	name := newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")
	url := serving(t, name)
	b.screen(1000, 700, false)
	b.call("Network.enable", nil, nil)
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 400, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(`document.querySelectorAll('table a').length >= 3 && live.textContent === 'live'`)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				call(t, map[string]string{"IPAMCTL_STORE": name}, "assign", "--host", "z", "--handle", fmt.Sprint("busy-", n), "-6", "1", "--pool", "pods6")
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	b.eval(`[...document.querySelectorAll('a')].find(a => a.textContent === 'pods6').click()`)
	b.until(`main.dataset.shown === 'pool/pods6' && document.querySelector('select')`)
	b.eval(`document.querySelector('select').focus(); main.dataset.views = 0`)
	b.until(`Number(main.dataset.views) >= 3`)
	if at := b.eval(`document.activeElement.tagName`); at != "SELECT" {
		t.Errorf("the focus is on %s", at)
	}
	b.eval(`location.hash = '#find/host:z'`)
	b.until(`main.dataset.shown === 'find/host:z' && main.innerText.includes('busy-1')`)
	b.eval(`word.value = '10.1.0.0/25'; document.querySelector('form').requestSubmit()`)
	b.until(`main.dataset.shown === 'find/10.1.0.0/25' && main.innerText.includes('10.1.0.0/24')`)
}
