package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A network whose configuration names a store shares its addresses with other nodes, and
// with other networks of the same space. Its directory has the guard against host-local, and a
// mark. The client of etcd takes
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

// openRemote opens a store; nil in a command that links no client.
var openRemote func(context.Context, Remote) (*Session, error)

// sharedConf are the keys of ipam that concern a shared network.
type sharedConf struct {
	Type              string     `json:"type"`
	Store             string     `json:"store"`
	StoreTLS          *RemoteTLS `json:"storeTLS"`
	StoreUser         string     `json:"storeUser"`
	StorePasswordFile string     `json:"storePasswordFile"`
	StoreInsecure     bool       `json:"storeInsecure"` // the password may go over the network in clear
	Space             string     `json:"space"`
	Node              string     `json:"node"`
}

// shared is where the state of a shared network is.
type shared struct {
	remote Remote
	space  string // the networks that name it share addresses
	node   string // whose attachments a GC concerns
}

// isShared reports whether the configuration names a store.
func (c *netConf) isShared() bool { return c.IPAM != nil && len(c.IPAM.Store) > 0 }

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
	if len(at.Params) > 0 {
		return r, badConf("ipam.store: the parameters after ? are keys of their own here: storeTLS, storeUser and storePasswordFile")
	}
	r = Remote{Endpoints: at.Endpoints, Prefix: at.Prefix, TLS: k.StoreTLS, User: k.StoreUser}
	if (k.StoreUser != "" || k.StorePasswordFile != "") && k.StoreTLS == nil && !k.StoreInsecure {
		return r, badConf("ipam.storeUser needs ipam.storeTLS: the password would go over the network in clear, which ipam.storeInsecure allows")
	}
	if k.StorePasswordFile != "" {
		b, err := os.ReadFile(k.StorePasswordFile)
		if err != nil {
			return r, badConf("ipam.storePasswordFile: %v", err)
		}
		r.Password = strings.TrimSpace(string(b))
	}
	return r, nil
}

// scope is the part of the space that a node's network answers for.
func (p place) scope() string { return p.shared.node + "/" + p.network }

// helperName is the command that links the client of etcd. It lies beside the other one.
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
	session, err := openRemote(ctx, r)
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
