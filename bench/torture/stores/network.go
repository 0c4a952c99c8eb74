package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
)

// network is the proxies before the members of a cluster: one for clients and one for members before each. It knows of every
// connection between members who has opened it, and can so cut a member off in both directions.
type network struct {
	mu      sync.Mutex
	names   map[uint64]int // member IDs
	cutPeer map[int]bool
	cutAll  map[int]bool // from clients, too
	links   map[*link]struct{}
	proxies []net.Listener
	wg      sync.WaitGroup
}

// link is one connection through a proxy.
type link struct {
	to     int // the member it leads to
	from   int // the member it comes from; -1 is a client, or not known
	client bool
	ends   [2]net.Conn
}

func newNetwork() *network {
	return &network{names: make(map[uint64]int), cutPeer: make(map[int]bool), cutAll: make(map[int]bool), links: make(map[*link]struct{})}
}

// proxy listens before a member, for clients or for members, and returns its own address.
func (n *network) proxy(member int, peer bool, target string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.proxies = append(n.proxies, l)
	n.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() { n.connect(&link{to: member, from: -1, client: !peer, ends: [2]net.Conn{c}}, target) })
		}
	})
	return l.Addr().String(), nil
}

// connect passes one connection on.
func (n *network) connect(k *link, target string) {
	defer func() { _ = k.ends[0].Close() }()
	in := bufio.NewReader(k.ends[0])
	if !k.client {
		k.from = n.origin(in)
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	k.ends[1] = server
	n.mu.Lock()
	n.links[k] = struct{}{}
	cut := n.isCut(k)
	n.mu.Unlock()
	if cut {
		n.forget(k)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(k.ends[0], server) // ends when it is cut
		_ = k.ends[0].Close()
	}()
	_, _ = io.Copy(server, in)
	_ = server.Close()
	<-done
	n.forget(k)
}

func (n *network) forget(k *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, k)
}

// origin reads, without taking it, the header of the first request of a member, which names it.
func (n *network) origin(in *bufio.Reader) int {
	const field = "X-Server-From: "
	for size := 64; size <= in.Size(); size += 64 {
		head, err := in.Peek(size)
		if len(head) == 0 || err != nil && in.Buffered() == 0 {
			return -1
		}
		head, _ = in.Peek(in.Buffered())
		if i := bytes.Index(head, []byte(field)); i >= 0 {
			if id, _, ok := bytes.Cut(head[i+len(field):], []byte("\r\n")); ok {
				return n.member(string(id))
			}
		}
		if bytes.Contains(head, []byte("\r\n\r\n")) {
			return -1
		}
	}
	return -1
}

// member returns the index of a member by its ID in hexadecimal.
func (n *network) member(id string) int {
	x, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return -1
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.names[x]; ok {
		return i
	}
	return -1
}

// isCut reports whether a link may not be. One between members whose origin is not known is cut with any cut.
func (n *network) isCut(k *link) bool {
	if k.client {
		return n.cutAll[k.to]
	}
	return n.cutPeer[k.to] || n.cutPeer[k.from] || k.from < 0 && len(n.cutPeer) > 0
}

// cut separates a member from the others, whose IDs are known now, and from clients, too, if so wanted. Links between members from
// before are broken: they come again and say whose they are.
func (n *network) cut(ids map[uint64]int, member int, clients bool) {
	n.mu.Lock()
	n.names = ids
	n.cutPeer[member] = true
	n.cutAll[member] = clients
	n.mu.Unlock()
	n.drop(func(k *link) bool { return !k.client || n.isCut(k) })
}

// drop closes links, which end.
func (n *network) drop(which func(*link) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.links {
		if which(k) {
			_ = k.ends[0].Close()
			_ = k.ends[1].Close()
		}
	}
}

// heal ends all cuts.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cutPeer)
	clear(n.cutAll)
}

// close ends the proxies and what goes through them.
func (n *network) close() {
	for _, l := range n.proxies {
		_ = l.Close()
	}
	n.drop(func(*link) bool { return true })
	n.wg.Wait()
}
