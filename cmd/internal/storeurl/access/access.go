// Package access reads the credentials for a store that package storeurl names: certificates, a user, and a password. The
// password comes out of a file or the environment, because all users of a machine see the arguments of its processes.
package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/ipalloc/ipalloc/cmd/internal/storeurl"
)

// Etcd has the credentials of a client of an etcd. TLS is nil for a connection without TLS.
type Etcd struct {
	TLS            *tls.Config
	User, Password string
}

// OfEtcd returns the credentials of a client of an etcd. It reads the parameters of the store's name. For missing ones it reads
// the variables of etcdctl: ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER and ETCDCTL_PASSWORD. A user without TLS is
// refused, because the password would cross the network in clear text.
func OfEtcd(l *storeurl.Location, getenv func(string) string) (e Etcd, err error) {
	param := func(name, variable string) string {
		if v := l.Params.Get(name); v != "" {
			return v
		}
		return getenv(variable)
	}
	ca, cert, key := param("cacert", "ETCDCTL_CACERT"), param("cert", "ETCDCTL_CERT"), param("key", "ETCDCTL_KEY")
	if (cert == "") != (key == "") {
		return e, errors.New("etcd: cert and key go together")
	}
	if ca != "" || cert != "" {
		if e.TLS, err = config(ca, cert, key); err != nil {
			return Etcd{}, fmt.Errorf("etcd: %w", err)
		}
	}
	e.User, e.Password, _ = strings.Cut(param("user", "ETCDCTL_USER"), ":")
	if v := getenv("ETCDCTL_PASSWORD"); v != "" {
		e.Password = v
	}
	if file := l.Params.Get(storeurl.PasswordFile); file != "" {
		if e.Password, err = password(file); err != nil {
			return Etcd{}, err
		}
	}
	if e.User != "" && e.TLS == nil && l.Params.Get("insecure-transport") != "true" {
		return Etcd{}, errors.New("etcd: a user needs TLS, with cacert=FILE: the password would go over the network in clear, " +
			"which insecure-transport=true allows")
	}
	return e, nil
}

// config reads the files of a TLS connection.
func config(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in it", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// password reads the first line of a file.
func password(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", storeurl.PasswordFile, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

// Postgres returns the name of a PostgreSQL for its driver, with the password that a file holds. Without one, the driver reads
// PGPASSWORD, PGPASSFILE and ~/.pgpass.
func Postgres(l *storeurl.Location) (dsn string, err error) {
	file := l.Params.Get(storeurl.PasswordFile)
	if file == "" {
		return l.DSN, nil
	}
	secret, err := password(file)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(l.DSN)
	if err != nil {
		return "", fmt.Errorf("%s: not a URL", l)
	}
	u.User = url.UserPassword(u.User.Username(), secret)
	return u.String(), nil
}
