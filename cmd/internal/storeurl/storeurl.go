// Package storeurl reads the names of stores in the flags of programs:
//
//	memory                              in memory, for a trial
//	bolt:///var/lib/ipam.db             a file of this machine
//	unix:///var/lib/ipam.db.sock        the store of a process of this machine, which serves it at a socket
//	etcd://host:2379,host:2379/prefix   an etcd cluster, and the prefix of the keys there
//	sqlite:///var/lib/ipam.sqlite       a SQLite file of this machine
//	postgres://user@host:5432/database  a PostgreSQL, as its own drivers name it; postgresql:// is the same
//	kube://namespace/name               the Kubernetes cluster of the kubeconfig, or of the pod
//
// The name of an etcd may have parameters with the names of etcdctl's flags. These are ?cacert=FILE&cert=FILE&key=FILE for TLS, user=NAME,
// password-file=FILE, and insecure-transport=true to send a password in clear text. A name with postgres may also have password-file,
// beside the parameters of PostgreSQL. Package access reads the files.
//
// It opens nothing, so a program links only the stores that it supports.
package storeurl

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Location is a store by its name.
type Location struct {
	Kind      string     // "memory", "bolt", "unix", "etcd", "sqlite", "postgres" or "kube"
	Path      string     // of the file, with Kind bolt, unix or sqlite
	Endpoints []string   // with Kind etcd
	Prefix    string     // of the keys, with a slash at both ends; with Kind etcd
	Namespace string     // with Kind kube
	Name      string     // of the store in it
	Params    url.Values // with Kind etcd; with Kind postgres, those that are not for the driver
	DSN       string     // as it was written, for the driver; it may hold a password
}

// String returns the name of the store without a password, for messages.
func (l *Location) String() string { return Redact(l.DSN) }

// param returns what finds a parameter of a name, as a URL or libpq has it: blanks may be around the sign, and a value may be quoted. It is
// compiled when it is first used, because that takes a thirtieth of a call of the plugin cni-ipam.
var param = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([^?&\s=]+)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)`)
})

// Redact replaces a password in the name of a store, well formed or not, by xxxxx.
func Redact(text string) string {
	text = param().ReplaceAllStringFunc(text, func(p string) string {
		m := param().FindStringSubmatch(p)
		name, err := url.QueryUnescape(m[1])
		user, _, ok := strings.Cut(m[3], ":")
		switch name = strings.ToLower(name); {
		case err != nil, strings.HasSuffix(name, "password"):
			return m[1] + m[2] + "xxxxx"
		case name == "user" && ok: // as etcdctl has it
			return m[1] + m[2] + user + ":xxxxx"
		}
		return p
	})
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	begin := strings.Index(text, "://") + 1
	for begin < at && text[begin] == '/' {
		begin++
	}
	if user := strings.IndexByte(text[begin:at], ':'); user >= 0 {
		return text[:begin+user] + ":xxxxx" + text[at:]
	}
	return text
}

// kinds are all kinds of stores, in the order in which texts name them.
var kinds = []string{"memory", "bolt", "etcd", "sqlite", "postgres", "kube"}

// forms names the forms of the kinds that a program supports.
func forms(supported []string) string {
	form := map[string]string{"memory": "memory", "bolt": "bolt:///path/of/file", "unix": "unix:///path/of/socket", "etcd": "etcd://host:port/prefix", "sqlite": "sqlite:///path/of/file",
		"postgres": "postgres://user@host:port/database", "kube": "kube://namespace/name"}
	list := make([]string, len(supported))
	for i, kind := range supported {
		list[i] = form[kind]
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// Parse reads the name text. The error calls its flag by the given name. The program supports the given kinds, or all if none are given.
func Parse(flag, text string, supported ...string) (*Location, error) {
	if len(supported) == 0 {
		supported = kinds
	}
	fault := func(format string, args ...any) (*Location, error) {
		return nil, fmt.Errorf("%s %s: %s", flag, Redact(text), fmt.Sprintf(format, args...))
	}
	l := &Location{DSN: text}
	var rest string
	var ok bool
	if l.Kind, rest, ok = strings.Cut(text, "://"); !ok && text != "memory" {
		return fault("a store is needed: %s", forms(supported))
	}
	if l.Kind == "postgresql" {
		l.Kind = "postgres"
	}
	if !slices.Contains(supported, l.Kind) {
		return fault("no such kind of store; the kinds are %s", strings.Join(supported, ", "))
	}
	switch l.Kind {
	case "memory":
		if rest != "" {
			return fault("memory has no address")
		}
	case "bolt", "unix", "sqlite":
		if l.Path = rest; rest == "" {
			return fault("the path of a file is missing, as in %s:///var/lib/ipam.db", l.Kind)
		}
		if host, _, _ := strings.Cut(rest, "/"); strings.Contains(host, "@") { // an error of the system would show it
			return fault("a file has no user; write ./ before a path that begins so")
		}
	case "postgres":
		if rest == "" {
			return fault("a host is missing, as in postgres://ipam@10.0.0.1:5432/ipam")
		}
		if strings.ContainsAny(rest, " \t\r\n") { // the driver would show it whole
			return fault("the name of a PostgreSQL is a URL, without blanks")
		}
		if err := l.takeParams(); err != nil {
			return fault("%v", err)
		}
	case "etcd":
		rest, query, _ := strings.Cut(rest, "?")
		if err := l.readParams(query); err != nil {
			return fault("%v", err)
		}
		hosts, prefix, _ := strings.Cut(rest, "/")
		switch {
		case strings.Contains(rest, "@"):
			return fault("the name of an etcd cluster has no user")
		case hosts == "":
			return fault("a host is missing, as in etcd://10.0.0.1:2379/ipam")
		}
		if prefix = strings.Trim(prefix, "/"); prefix == "" {
			return fault("the prefix of the keys is missing, as in etcd://10.0.0.1:2379/ipam")
		}
		l.Endpoints, l.Prefix = strings.Split(hosts, ","), "/"+prefix+"/"
	case "kube":
		if l.Namespace, l.Name, ok = strings.Cut(rest, "/"); !ok || l.Namespace == "" || l.Name == "" {
			return fault("a namespace and a name are needed, as in kube://default/ipam")
		}
	}
	return l, nil
}

// params are the parameters of an etcd's name.
var params = []string{"cacert", "cert", "key", "user", PasswordFile, "insecure-transport"}

// PasswordFile is the parameter that names a file with the password.
const PasswordFile = "password-file"

// readParams reads the parameters of an etcd's name.
func (l *Location) readParams(query string) (err error) {
	if query == "" {
		return nil
	}
	if l.Params, err = url.ParseQuery(query); err != nil {
		return fmt.Errorf("the parameters after ? cannot be read")
	}
	for name := range l.Params {
		if !slices.Contains(params, name) {
			return fmt.Errorf("there is no parameter %q; the parameters are %s", name, strings.Join(params, ", "))
		}
	}
	return nil
}

// takeParams takes the parameters of a PostgreSQL's name that its driver does not know out of it.
func (l *Location) takeParams() error {
	head, query, found := strings.Cut(l.DSN, "?")
	if !found || !strings.Contains(query, PasswordFile+"=") {
		return nil
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("the parameters after ? cannot be read")
	}
	l.Params = url.Values{PasswordFile: q[PasswordFile]}
	delete(q, PasswordFile)
	if l.DSN = head; len(q) > 0 {
		l.DSN += "?" + q.Encode()
	}
	return nil
}

// SQLite returns the name that makes the driver of SQLite open a file with any path, with options such as "mode=ro".
func SQLite(path string, options ...string) string {
	name := "file:" + (&url.URL{Path: path}).EscapedPath()
	if len(options) > 0 {
		name += "?" + strings.Join(options, "&")
	}
	return name
}
