package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// TLS names the PEM files that members of an etcd use to serve clients.
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

// NewTLS makes an authority, a certificate of it for members on loopback and one for a client, and writes them to a directory. They
// are valid for a day.
func NewTLS(dir string) (*TLS, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	t := &TLS{CA: in("ca.pem"), Cert: in("member.pem"), Key: in("member.key"), ClientCert: in("client.pem"), ClientKey: in("client.key")}
	ca, signer, err := newCertificate(t.CA, in("ca.key"), "ca", nil, nil)
	if err == nil {
		_, _, err = newCertificate(t.Cert, t.Key, "member", ca, signer)
	}
	if err == nil {
		_, _, err = newCertificate(t.ClientCert, t.ClientKey, "client", ca, signer)
	}
	return t, err
}

// newCertificate writes a certificate that ca signs, or an authority if ca is nil, and its key.
func newCertificate(certFile, keyFile, name string, ca *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // etcd's gateway is a client of etcd
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		BasicConstraintsValid: true,
	}
	if ca == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		ca, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	write := func(file, kind string, data []byte) error {
		return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600)
	}
	return cert, key, errors.Join(err, write(certFile, "CERTIFICATE", der), write(keyFile, "EC PRIVATE KEY", secret))
}
