package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

//go:embed page
var pageFiles embed.FS

const (
	mostRows   = 500 // rows of a list on the page, which says that there are more
	mostGuests = 64  // browsers that wait for changes; more are refused
)

// handler serves the page below a path.
func (p *page) handler(path string) http.Handler {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the files are in the program
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /map.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		fmt.Fprint(w, addrmap.StyleSheet())
	})
	mux.HandleFunc("GET /map.svg", p.svg)
	mux.HandleFunc("GET /events", p.events)
	for name, answer := range map[string]func(context.Context, *ipset.Engine, *http.Request) (any, error){
		"pools": p.poolRows, "blocks": p.blockRows, "addresses": p.addressRows, "find": p.find, "changes": p.changeRows, "others": p.otherRows,
	} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			p.reading.RLock()
			defer p.reading.RUnlock()
			v, err := answer(r.Context(), p.e, r)
			if err != nil {
				p.refuse(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // the browser has gone
		})
	}
	return guarded(http.StripPrefix(path[:len(path)-1], mux))
}

// guarded answers only a browser that asks this machine by a name of its own: a page from elsewhere whose name is made to lead here has
// another Host. Nothing but what the page brings is run or shown.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if at, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !at.IsLoopback()) {
			http.Error(w, "ask for this page at 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); r.Method != http.MethodGet || site == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "only the page itself may ask, with GET", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)) // a recorder has none
		next.ServeHTTP(w, r)
	})
}

// refuse answers with an error.
func (p *page) refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch statusOf(err) {
	case exitUsage:
		status = http.StatusBadRequest
	case exitNotFound:
		status = http.StatusNotFound
	case exitDamaged:
		status = http.StatusInternalServerError
	}
	http.Error(w, err.Error(), status)
}

// rows is a list on the page.
type rows struct {
	Rows []any `json:"rows"`
	More bool  `json:"more,omitempty"` // there are more
}

func (r *rows) addAll(l *listing) {
	for _, x := range l.rows {
		if r.More = len(r.Rows) >= mostRows; r.More {
			return
		}
		r.Rows = append(r.Rows, x.item)
	}
}

func (p *page) poolRows(ctx context.Context, e *ipset.Engine, _ *http.Request) (any, error) {
	all, err := pools(ctx, e)
	out := rows{Rows: []any{}}
	for i := range all {
		out.Rows = append(out.Rows, all[i].view())
	}
	return out, err
}

// prefixOf returns the prefix that a request is about.
func prefixOf(r *http.Request) (netip.Prefix, error) { return parsePrefix(r.FormValue("in")) }

func (p *page) blockRows(ctx context.Context, e *ipset.Engine, r *http.Request) (any, error) {
	in, err := prefixOf(r)
	if err != nil {
		return nil, err
	}
	use, err := e.Utilization(ctx)
	out, l := rows{Rows: []any{}}, &listing{}
	for _, pool := range use {
		for i := range pool.Blocks {
			if len(l.rows) <= mostRows && pool.Blocks[i].Prefix.Overlaps(in) {
				addBlock(l, &pool.Blocks[i])
			}
		}
	}
	out.addAll(l)
	return out, err
}

func (p *page) addressRows(ctx context.Context, e *ipset.Engine, r *http.Request) (any, error) {
	in, err := prefixOf(r)
	if err != nil {
		return nil, err
	}
	all, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	out := rows{Rows: []any{}}
	for b, err := range e.Operator().Blocks(ctx, in) {
		if err != nil {
			return nil, err
		}
		for v := range viewsOf(b, all, func(al alloc.Allocation) bool { return in.Contains(al.Address) }) {
			if out.More = len(out.Rows) >= mostRows; out.More {
				return out, nil
			}
			out.Rows = append(out.Rows, v)
		}
	}
	return out, nil
}

// otherRows returns what the space has beside addresses, and the numbers of all ranges.
func (p *page) otherRows(ctx context.Context, _ *ipset.Engine, _ *http.Request) (any, error) {
	l, err := p.others(ctx, func(otherRow) bool { return true })
	if err != nil {
		return nil, err
	}
	out := rows{Rows: []any{}}
	out.addAll(l)
	return out, nil
}

// others lists the wanted records beside addresses.
func (p *page) others(ctx context.Context, want func(otherRow) bool) (*listing, error) {
	l := &listing{}
	return l, p.eachOtherRow(ctx, p.at, func(r otherRow) {
		if want(r) {
			l.add(r.What, r)
		}
	})
}

// find returns what a word names: an address, a handle, a host with its blocks, pools by name or by a prefix that they overlap, what has
// an attribute KEY=VALUE that a pool indexes, and prefixes, numbers, attachments and limits by what they are about and by their owners.
func (p *page) find(ctx context.Context, e *ipset.Engine, r *http.Request) (any, error) {
	word := r.FormValue("q")
	all, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	l, err := p.others(ctx, func(r otherRow) bool { return r.about(word) })
	if err != nil {
		return nil, err
	}
	out := rows{Rows: []any{}}
	if ip, err := parseAddr(word); err == nil {
		views, err := lookup(ctx, e, all, ip)
		for _, v := range views {
			out.Rows = append(out.Rows, v)
		}
		if out.addAll(l); len(l.rows) > 0 {
			err = nil // it may be in no pool
		}
		return out, err
	}
	if err := findPools(ctx, e, l, word); err != nil {
		return nil, err
	}
	held, err := e.IPsByHandle(ctx, word)
	if key, value, is := strings.Cut(word, "="); is && err == nil {
		var of []alloc.Allocation
		if of, err = e.IPsByAttribute(ctx, key, value); err == nil || errors.Is(err, ipalloc.ErrInvalid) || errors.Is(err, ipalloc.ErrNotFound) {
			held, err = slices.Concat(held, of), nil // no pool indexes another one
		}
	}
	if o, faulty := ownerOf(word); err == nil && faulty == nil {
		var of []alloc.Allocation
		if of, err = e.IPsByHost(ctx, o); err == nil {
			held = slices.Concat(held, of)
			var blocks []netip.Prefix
			if blocks, err = e.BlocksOf(ctx, o); len(blocks) > 0 {
				l.add(o.Name, hostView{Host: o.String(), Blocks: texts(blocks), Addresses: len(of)})
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if len(held)+len(l.rows) == 0 {
		return nil, fail(exitNotFound, "%q is no address, pool, prefix, number, handle, owner, host or attribute of what is held", word)
	}
	err = addHeld(ctx, e, l, held[:min(len(held), mostRows+1)])
	out.addAll(l)
	return out, err
}

// findPools adds the pools of a name, or those that a prefix overlaps.
func findPools(ctx context.Context, e *ipset.Engine, l *listing, word string) error {
	in, err := netip.ParsePrefix(word)
	prefix := err == nil
	all, err := pools(ctx, e)
	for i := range all {
		if all[i].Name == word || prefix && all[i].Pool.Prefix.Overlaps(in) {
			l.add(all[i].Name, all[i].view())
		}
	}
	return err
}

func (p *page) changeRows(context.Context, *ipset.Engine, *http.Request) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := rows{Rows: []any{}}
	for _, v := range slices.Backward(p.latest) {
		out.Rows = append(out.Rows, v)
	}
	return out, nil
}

// svg draws a part of a pool.
func (p *page) svg(w http.ResponseWriter, r *http.Request) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	f := mapFlags{by: cmp.Or(r.FormValue("by"), "state"), order: cmp.Or(r.FormValue("order"), "hilbert"), host: r.FormValue("host"),
		in: r.FormValue("in")}
	width, _ := strconv.Atoi(r.FormValue("width")) // 0 is a width that is good to look at
	var pictures []addrmap.Picture
	err := f.check()
	if err == nil {
		pictures, err = p.pictures(r.Context(), p.e, p.at, &f, []string{r.FormValue("pool")})
	}
	if err != nil {
		p.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_ = addrmap.SVG(w, addrmap.SVGStyle{Width: width, Limit: 400_000, Bare: true}, pictures...) // the browser has gone
}

// events sends a line when something has changed, at most twice a second.
func (p *page) events(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.guests++
	guests := p.guests
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.guests--
		p.mu.Unlock()
	}()
	if guests > mostGuests {
		p.refuse(w, errors.New("too many pages are open"))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for {
		p.mu.Lock()
		told := p.told
		text, err := json.Marshal(map[string]any{"revision": p.rev, "fault": p.fault})
		p.mu.Unlock()
		if err == nil {
			err = out.SetWriteDeadline(time.Now().Add(time.Minute))
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", text)
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return
		}
		select {
		case <-told:
		case <-time.After(20 * time.Second): // a connection that is gone is found by writing
		case <-r.Context().Done():
			return
		}
		if wait(r.Context(), 500*time.Millisecond) != nil {
			return
		}
	}
}
