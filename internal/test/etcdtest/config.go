package etcdtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// ErrConfig: a Config that says what can't be.
var ErrConfig = errors.New("bad configuration")

// Config says what to run. The zero Config is one member on free ports, with its data
// in a directory that Close removes.
type Config struct {
	// Members is how many there are, 1 by default.
	Members int
	// Dir holds a data directory and a log per member: <name> and <name>.log. An empty
	// one is made, and removed by Close.
	Dir string
	// Binary is the etcd to run, by default that of the function Binary.
	Binary string
	// Flags are for all members and override those that this package gives:
	// "--auto-compaction-retention=1s", "--quota-backend-bytes=16777216".
	Flags []string
	// NoSync has etcd leave out fsync: faster, and enough to survive kill -9.
	NoSync bool
	// TLS serves clients over TLS if it is not nil.
	TLS *TLS

	// Client and Peer are the addresses, host:port, at which the members listen, one
	// for each member; free ports on 127.0.0.1 by default.
	Client, Peer []string
	// AdvertiseClient and AdvertisePeer are the addresses that members tell others to
	// reach them at, those of proxies for example; by default where they listen.
	AdvertiseClient, AdvertisePeer []string
}

// check returns what is wrong with c.
func (c *Config) check() error {
	if c.Members < 0 || c.Members > 9 {
		return fmt.Errorf("etcdtest: %w: %d members, want 1 to 9", ErrConfig, c.Members)
	}
	for _, a := range []struct {
		name      string
		addresses []string
	}{{"Client", c.Client}, {"Peer", c.Peer}, {"AdvertiseClient", c.AdvertiseClient}, {"AdvertisePeer", c.AdvertisePeer}} {
		if len(a.addresses) != 0 && len(a.addresses) != max(c.Members, 1) {
			return fmt.Errorf("etcdtest: %w: %d addresses in %s for %d members", ErrConfig, len(a.addresses), a.name, max(c.Members, 1))
		}
		for _, address := range a.addresses {
			if _, _, err := net.SplitHostPort(address); err != nil {
				return fmt.Errorf("etcdtest: %w: %s: %w", ErrConfig, a.name, err)
			}
		}
	}
	return nil
}

// The ports to choose from lie below those that systems give to outgoing connections
// (32768 and up on Linux, 49152 elsewhere): of those, one may be gone by the time
// that etcd listens, or starts again.
const firstPort, lastPort = 15000, 32000

// FreeAddresses returns n addresses at which no process listens now.
func FreeAddresses(n int) ([]string, error) {
	var listeners []net.Listener // all open until the last one is found: no address twice
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var addresses []string
	for try := 0; len(addresses) < n; try++ {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			if try > 1000 {
				return nil, fmt.Errorf("etcdtest: no free port: %w", err)
			}
			continue
		}
		listeners = append(listeners, l)
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
