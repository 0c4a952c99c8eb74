package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipalloc/ipalloc/examples/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A network whose configuration names a store shares its addresses with other nodes, and
// with other networks of the same space. Its directory has the lock, which lets one call of
// the node at a time through, and the guard against host-local. The client of an etcd takes
// longer to initialise than a whole call on a file: it is linked into a second command,
// which the first one becomes when a configuration asks for it.

// Remote is a store as a configuration names it.
type Remote struct {
	Endpoints []string // host:port
	Prefix    string   // of the keys, with a slash at both ends
	TLS       *RemoteTLS
	User      string
	Password  string
	NoCreate  bool // an empty store is an error
}

// RemoteTLS names files in PEM. An empty CA means the system's.
type RemoteTLS struct {
	CA         string `json:"ca"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	ServerName string `json:"serverName"`
}

// Session is an open Remote.
type Session struct {
	Store store.Store
	Close func() error
}

// Client is what a command links beside this package.
type Client struct {
	Open      func(context.Context, Remote) (*Session, error)
	Retryable func(error) bool             // whether trying again later can help, after an error of Open or of the store
	YAML      func([]byte) ([]byte, error) // returns the JSON of a text in YAML
}

// client is that of the command; nil if it links none.
var client *Client

// sharedConf are the keys of ipam that concern a shared network.
type sharedConf struct {
	Type              string     `json:"type"`
	Store             string     `json:"store"`
	StoreTLS          *RemoteTLS `json:"storeTLS"`
	StoreUser         string     `json:"storeUser"`
	StorePasswordFile string     `json:"storePasswordFile"`
	Space             string     `json:"space"`
	Node              string     `json:"node"`
	whereaboutsConf
}

// shared is where the state of a shared network is.
type shared struct {
	remote Remote
	space  string               // the networks that name it share addresses
	node   string               // whose attachments a GC concerns
	sets   []hostlocal.RangeSet // of a configuration in the form of whereabouts, else nil
	dns    types.DNS            // likewise
}

// isShared reports whether the configuration names a store, or has the form of whereabouts,
// whose file of defaults may name one.
func (c *netConf) isShared() bool {
	return c.IPAM != nil && (len(c.IPAM.Store) > 0 || c.IPAM.Type == whereabouts)
}

// readShared reads the keys of a shared network.
func (c *netConf) readShared() (*shared, error) {
	var whole struct {
		IPAM sharedConf `json:"ipam"`
	}
	if err := decode(c.raw, &whole); err != nil {
		return nil, err
	}
	k := &whole.IPAM
	s := &shared{space: c.Name}
	if c.IPAM.Type == whereabouts {
		if err := k.whereabouts(s, c.raw); err != nil {
			return nil, err
		}
	}
	if k.Space != "" {
		s.space = k.Space
	}
	if s.node = k.Node; s.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		s.node = name
	}
	var err error
	s.remote, err = k.remote()
	return s, err
}

// remote reads the keys that name the store.
func (k *sharedConf) remote() (r Remote, err error) {
	at, err := storeurl.Parse("ipam.store", k.Store, "etcd")
	if err != nil {
		return r, badConf("%v", err)
	}
	r = Remote{Endpoints: at.Endpoints, Prefix: at.Prefix, TLS: k.StoreTLS, User: k.StoreUser}
	if k.StorePasswordFile != "" {
		b, err := os.ReadFile(k.StorePasswordFile)
		if err != nil {
			return r, badConf("ipam.storePasswordFile: %v", err)
		}
		r.Password = strings.TrimSpace(string(b))
	}
	return r, nil
}

// openShared connects, and takes over what the node has in files, of host-local or of this
// plugin. It is called with the network's lock held.
func (s *state) openShared() error {
	if client == nil {
		return badConf("ipam.store needs the command %s", helperName)
	}
	if _, err := s.guard(); err != nil {
		return err
	}
	session, err := client.Open(s.ctx, s.shared.remote)
	if err != nil {
		return err
	}
	s.session = session
	// Nodes compete for the same records: the time limit ends a call, not the number of attempts.
	s.engine, err = hostlocal.New(session.Store, hostlocal.Config{
		Network: s.shared.space, Scope: s.scope(), Sets: s.sets, Attempts: 1 << 20,
	})
	if err != nil {
		return err
	}
	l, err := readLegacy(s.dir)
	if err == nil {
		err = s.importFiles(l)
	}
	if err == nil && s.exists(stateName) {
		err = s.moveLocal()
	}
	return err
}

// scope is the part of the space that a node's network answers for.
func (p place) scope() string {
	if p.foreign {
		return ""
	}
	return p.shared.node + "/" + p.network
}

// moveLocal imports the state file of a network that was not shared before.
func (s *state) moveLocal() error {
	db, err := boltstore.Open(s.ctx, s.file(stateName), boltstore.Options{ReadOnly: true, LockWait: lockWait})
	if err != nil {
		return err
	}
	defer db.Close()
	local, err := hostlocal.New(db, hostlocal.Config{Network: s.network})
	if err != nil {
		return err
	}
	all, err := local.Export(s.ctx)
	if err != nil {
		return err
	}
	left, err := s.engine.Import(s.ctx, all)
	if err != nil {
		return err
	}
	for _, e := range left {
		logf("network %s: the address was given in two places: %v", s.network, e)
	}
	logf("network %s: moved %d attachments of this node into the shared store", s.network, len(all.Holdings))
	return os.Rename(s.file(stateName), s.file(stateName+".moved"))
}

// retry gives an error of the shared store that passes the code for it.
func (s *state) retry(err error) error {
	if err == nil || s.shared == nil || client == nil || !client.Retryable(err) {
		return err
	}
	return types.NewError(types.ErrTryAgainLater, err.Error(), "")
}

// helperName is the command that links the client of an etcd. It lies beside the other one.
const helperName = "cni-ipam-etcd"

// handOver becomes the other command, with the same arguments, environment and stdin.
func handOver(args []string, stdin []byte) *types.Error {
	self, err := os.Executable()
	if err == nil {
		self = filepath.Join(filepath.Dir(self), helperName)
		err = become(self, args, stdin)
	}
	return types.NewError(types.ErrIOFailure, "ipam.store needs "+self+": "+err.Error(), "")
}

// readConfFile reads the configuration of a network that a person names, of one plugin or a
// list of them.
func readConfFile(path string) (*netConf, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list struct {
		Name       string                       `json:"name"`
		CNIVersion string                       `json:"cniVersion"`
		Plugins    []map[string]json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for _, p := range list.Plugins {
		if p["ipam"] != nil {
			p["name"], _ = json.Marshal(list.Name)
			p["cniVersion"], _ = json.Marshal(list.CNIVersion)
			data, _ = json.Marshal(p)
		}
	}
	c := &netConf{raw: data}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, err
	}
	if !plainName(c.Name) {
		return nil, errors.New(path + ": no name of a network")
	}
	return c, nil
}

// lookShared reads a shared network and changes nothing.
func (p place) lookShared(check bool) (v view, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	r := p.shared.remote
	r.NoCreate = true
	session, err := client.Open(ctx, r)
	if err != nil {
		return v, err
	}
	defer session.Close()
	v.ours, v.files = true, &legacy{}
	engine, err := hostlocal.New(session.Store, hostlocal.Config{Network: p.shared.space, Scope: p.scope()})
	if err == nil {
		v.state, err = engine.Export(ctx)
	}
	if err == nil && check {
		err = engine.Check(ctx)
	}
	return v, err
}
