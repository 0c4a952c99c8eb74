package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// TLS names the files, in PEM, with which members serve clients.
type TLS struct {
	CA                    string // whom clients trust, and members if ClientAuth is set
	Cert, Key             string // the members'
	ClientCert, ClientKey string // a client's; members do not read them
	ClientAuth            bool   // a client must show a certificate of the CA
}

func (t *TLS) flags() []string {
	flags := []string{"--cert-file", t.Cert, "--key-file", t.Key}
	if t.ClientAuth {
		flags = append(flags, "--client-cert-auth", "--trusted-ca-file", t.CA)
	}
	return flags
}

// NewTLS makes an authority, a certificate of it for members on loopback and one for
// a client, and writes them to a directory. They are good for a day. It fails with an
// error of the file system.
func NewTLS(dir string) (*TLS, error) {
	t := &TLS{}
	for name, path := range map[string]*string{
		"ca.pem": &t.CA, "member.pem": &t.Cert, "member.key": &t.Key, "client.pem": &t.ClientCert, "client.key": &t.ClientKey,
	} {
		*path = filepath.Join(dir, name)
	}
	ca, err := newCertificate("ca", nil)
	if err != nil {
		return nil, err
	}
	if err := writePEM(t.CA, "CERTIFICATE", ca.cert.Raw); err != nil {
		return nil, err
	}
	for _, of := range []struct{ name, cert, key string }{{"member", t.Cert, t.Key}, {"client", t.ClientCert, t.ClientKey}} {
		c, err := newCertificate(of.name, ca)
		if err != nil {
			return nil, err
		}
		key, err := x509.MarshalECPrivateKey(c.key)
		if err != nil {
			return nil, fmt.Errorf("etcdtest: %w", err)
		}
		if err := writePEM(of.cert, "CERTIFICATE", c.cert.Raw); err != nil {
			return nil, err
		}
		if err := writePEM(of.key, "EC PRIVATE KEY", key); err != nil {
			return nil, err
		}
	}
	return t, nil
}

type certificate struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newCertificate makes a certificate that ca signs, or an authority if ca is nil.
func newCertificate(name string, ca *certificate) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("etcdtest: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("etcdtest: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // etcd's gateway is a client of etcd
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		BasicConstraintsValid: true,
	}
	c := &certificate{key: key}
	parent, signer := template, key
	if ca == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err == nil {
		c.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("etcdtest: %w", err)
	}
	return c, nil
}

func writePEM(path, kind string, data []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		return fmt.Errorf("etcdtest: %w", err)
	}
	return nil
}
