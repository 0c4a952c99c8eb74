package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The command cni-ipam-etcd is a plugin of its own: a network whose configuration names this type shares its addresses with
// other nodes, and with other networks of the same space, in an etcd. No call of it reads or writes a directory of networks.
// The command cni-ipam links no client of etcd, because that takes longer to initialise than a whole call on a file.

// sharedName is the type of a network that nodes share, and the name of its command.
const sharedName = "cni-ipam-etcd"

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
	// Lock waits until no other call holds a lock of that name. The lease of the lock is longer than a call: it ends with
	// unlock, with the process that holds it, or after LeaseTime.
	Lock  func(ctx context.Context, name string) (unlock func() error, err error)
	Close func() error
}

// callTime bounds a call on a shared store. LeaseTime is longer, so a call that is alive has its lock.
const (
	callTime  = 2 * time.Minute
	LeaseTime = callTime + 30*time.Second
)

// A key that no attachment uses keeps its addresses for a number of days.
const (
	defaultKeyDays = 30
	maxKeyDays     = 36500
)

// keyField is the member of args.cni that names a key. Multus passes on what a pod has in cni-args of its network selection; the
// name is that of the reference to an IPAMClaim there (k8snetworkplumbingwg, NetworkSelectionElement).
const keyField = "ipam-claim-reference"

// openRemote opens a store; nil in the command for local networks.
var openRemote func(context.Context, Remote) (*Session, error)

// sharedConf are the keys of ipam that concern a shared network.
type sharedConf struct {
	Store             string     `json:"store"`
	StoreTLS          *RemoteTLS `json:"storeTLS"`
	StoreUser         string     `json:"storeUser"`
	StorePasswordFile string     `json:"storePasswordFile"`
	StoreInsecure     bool       `json:"storeInsecure"` // the password may go over the network in clear
	Space             string     `json:"space"`
	Node              string     `json:"node"`
	KeyDays           *int       `json:"keyDays"`
}

// shared is where the state of a shared network is.
type shared struct {
	remote Remote
	space  string // the networks that name it share addresses
	node   string // whose attachments a GC concerns
	keyAge time.Duration
}

// readShared reads the keys of a shared network. A local network may not name a store: earlier versions shared such a network.
func (c *netConf) readShared() error {
	switch named := len(c.IPAM.Store) > 0; {
	case openRemote == nil && named:
		return badConf("ipam.store: a network that nodes share has the ipam.type %q, not %q: see the README of %s", sharedName, c.IPAM.Type, sharedName)
	case openRemote == nil:
		return nil
	case !named:
		return badConf("ipam.store is missing: it names the etcd of a network that nodes share")
	case c.IPAM.Type != sharedName:
		return badConf("ipam.type is %q: a network that nodes share has the type %q", c.IPAM.Type, sharedName)
	}
	var whole struct {
		IPAM sharedConf `json:"ipam"`
	}
	if err := decode(c.raw, &whole); err != nil {
		return err
	}
	k := &whole.IPAM
	s := &shared{space: c.Name, node: k.Node}
	if k.Space != "" {
		s.space = k.Space
	}
	days := defaultKeyDays
	if k.KeyDays != nil {
		days = *k.KeyDays
	}
	if days < 1 || days > maxKeyDays {
		return badConf("ipam.keyDays is %d, not from 1 to %d", days, maxKeyDays)
	}
	s.keyAge = time.Duration(days) * 24 * time.Hour
	var err error
	if s.node == "" {
		if s.node, err = os.Hostname(); err != nil {
			return err
		}
	}
	s.remote, err = k.remote()
	c.shared = s
	return err
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

// openShared connects, and takes the lock of the attachment that the call is for.
func (s *state) openShared() error {
	var ctx context.Context
	ctx, s.cancel = context.WithTimeout(s.ctx, callTime)
	s.ctx = ctx
	r := s.shared.remote
	r.NoCreate = s.tool
	session, err := openRemote(ctx, r)
	if err != nil {
		return err
	}
	s.session = session
	db := session.Store
	if s.caller != "" {
		db = living{db, s.caller}
	}
	// Nodes compete for the same records: the time limit ends a call, not the number of attempts.
	s.engine, err = hostlocal.New(db, hostlocal.Config{
		Network: s.shared.space, Scope: s.scope(), Sets: s.sets, Attempts: 1 << 20, Keys: true,
	})
	if err == nil && s.lockOf != (hostlocal.Attachment{}) {
		if s.unlock, err = session.Lock(ctx, s.scope()+"/"+s.lockOf.String()); err != nil {
			err = types.NewError(types.ErrTryAgainLater, "the lock of the attachment: "+err.Error(), "")
		}
	}
	return err
}

// living is the store of a call. It commits nothing when the caller has died: the runtime may have sent the DEL of the attachment
// by then, and the DEL may have ended. A DEL makes every commit fail that was planned before it.
type living struct {
	store.Store
	caller string
}

// errOrphan means that the program which called this plugin, or its own caller, has died.
var errOrphan = errors.New("the program that called this plugin has died")

// Commit implements [store.Store].
func (l living) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if callers() != l.caller {
		return 0, errOrphan
	}
	return l.Store.Commit(ctx, ops)
}

// callers names the parent of this process and, where the system tells it, the parent's parent: a runtime calls a plugin such as
// bridge, which calls this one. A process whose parent dies gets another one.
func callers() string {
	parent := os.Getppid()
	text := fmt.Sprint(parent)
	if stat, err := readLine(fmt.Sprintf("/proc/%d/stat", parent)); err == nil {
		_, after, _ := strings.Cut(stat, ") ") // after the program's name, which may hold spaces
		if f := strings.Fields(after); len(f) > 1 {
			text += " " + f[1]
		}
	}
	return text
}

// In a space that several networks share, the interface of an attachment is recorded with its
// network behind a slash, which no interface has in its name.

// inNetwork returns the attachment as it is recorded.
func (p place) inNetwork(a hostlocal.Attachment) hostlocal.Attachment {
	if p.shared != nil && p.shared.space != p.network && a.Interface != "" {
		a.Interface += "/" + p.network
	}
	return a
}

// keyName returns a key as it is recorded: networks of one space have keys of their own.
func (p place) keyName(key string) string {
	if p.shared != nil && p.shared.space != p.network {
		return key + "/" + p.network
	}
	return key
}

// expireKeys ends the keys that have been out of use for long. Every attachment stays: none was added before the first moment.
func (s *state) expireKeys() error {
	freed, err := s.engine.GC(s.ctx, hostlocal.GCArgs{Made: time.Unix(0, 1), Idle: s.shared.keyAge})
	for _, h := range freed {
		logf("released %s of %s, which no container has used for %s", joinAddrs(h.Addresses), h.Attachment, s.shared.keyAge)
	}
	return err
}

// retry gives an error of the shared store that passes the code for it.
func (s *state) retry(err error) error {
	if err == nil || s.shared == nil || !store.Retryable(err) {
		return err
	}
	return types.NewError(types.ErrTryAgainLater, err.Error(), "")
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
	return c, c.complete()
}

// lookShared reads a shared network and changes nothing.
func (p place) lookShared(check bool) (v view, err error) {
	s, err := p.open()
	if err != nil {
		return v, err
	}
	v.ours, v.files = true, &legacy{}
	v.state, err = s.engine.Export(s.ctx)
	if err == nil && check {
		err = s.engine.Check(s.ctx)
	}
	return v, errors.Join(err, s.close())
}
