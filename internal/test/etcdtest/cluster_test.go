//go:build go1.26 && unix

// etcd itself asks for Go 1.26.

package etcdtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guard is how long anything here may take before it is taken for hung.
func guard(t *testing.T) context.Context {
	if testing.Short() || os.Getenv(Env) == skipWord {
		t.Skip("builds and runs etcd")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// call calls etcd's JSON gateway.
func call(ctx context.Context, client *http.Client, endpoint, verb string, request map[string]string) (string, error) {
	for name, value := range request {
		request[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	body, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/v3/kv/"+verb, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

func put(t *testing.T, ctx context.Context, endpoint, key, value string) {
	t.Helper()
	if _, err := call(ctx, http.DefaultClient, endpoint, "put", map[string]string{"key": key, "value": value}); err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, ctx context.Context, endpoint, key, value string) {
	t.Helper()
	text, err := call(ctx, http.DefaultClient, endpoint, "range", map[string]string{"key": key})
	if err != nil || !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(value))) {
		t.Fatalf("%s is not %s: %s, %v", key, value, text, err)
	}
}

func TestAMemberLosesNothingByKill9(t *testing.T) {
	ctx := guard(t)
	c := New(t, Config{})
	m, endpoint := c.Members()[0], c.Endpoints()[0]
	put(t, ctx, endpoint, "k", "v")
	if err := m.Start(); !errors.Is(err, ErrRunning) {
		t.Error(err)
	}
	for _, end := range []func(){m.Kill, func() {
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	}} {
		before := m.PID()
		end()
		<-m.Exited()
		if m.Running() || m.PID() != 0 || before == 0 {
			t.Error("it runs on as ", m.PID())
		}
		if err := m.Healthy(ctx); !errors.Is(err, ErrExited) {
			t.Error(err)
		}
		if err := c.WaitHealthy(ctx); !errors.Is(err, ErrExited) {
			t.Error(err)
		}
		if err := m.Pause(); !errors.Is(err, ErrExited) {
			t.Error(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if err := m.WaitHealthy(ctx); err != nil {
			t.Fatal(err)
		}
		wantValue(t, ctx, endpoint, "k", "v")
	}
}

func TestAPausedMemberDoesNotAnswer(t *testing.T) {
	ctx := guard(t)
	c := New(t, Config{NoSync: true})
	m := c.Members()[0]
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := m.Healthy(short); !errors.Is(err, ErrUnhealthy) {
		t.Error(err)
	}
	if !m.Running() {
		t.Error("a paused one does run")
	}
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitHealthy(ctx); err != nil {
		t.Error(err)
	}
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	m.Kill() // ends it all the same
}

func TestThreeMembersOutliveTheirLeader(t *testing.T) {
	ctx := guard(t)
	c := New(t, Config{Members: 3, NoSync: true})
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	put(t, ctx, c.Endpoints()[0], "k", "v")
	leader.Kill()
	if err := c.WaitHealthy(ctx); err != nil { // the other two
		t.Fatal(err)
	}
	if next, err := c.Leader(ctx); err != nil || next == leader {
		t.Fatal(next, err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitHealthy(ctx); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range c.Endpoints() {
		wantValue(t, ctx, endpoint, "k", "v")
	}
}

func TestTLSWithClientCertificates(t *testing.T) {
	ctx := guard(t)
	files, err := NewTLS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files.ClientAuth = true
	c := New(t, Config{NoSync: true, TLS: files})
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	ask := func() error {
		transport := &http.Transport{TLSClientConfig: config.Clone()}
		defer transport.CloseIdleConnections()
		_, err := call(ctx, &http.Client{Transport: transport}, c.Endpoints()[0], "range", map[string]string{"key": "k"})
		return err
	}
	if err := ask(); err == nil {
		t.Error("served without a certificate")
	}
	pair, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{pair}
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// A proxy before the peers and the clients: it is there before the members are, and
// forwards to where they will listen.
func TestProxiesBeforeMembers(t *testing.T) {
	ctx := guard(t)
	const members = 2
	var config Config
	var listeners []net.Listener
	for range 2 * members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		listeners = append(listeners, l)
	}
	config.Members, config.NoSync = members, true
	for i := range members {
		config.AdvertiseClient = append(config.AdvertiseClient, listeners[i].Addr().String())
		config.AdvertisePeer = append(config.AdvertisePeer, listeners[members+i].Addr().String())
	}
	c := NewPrepared(t, config)
	for i, m := range c.Members() {
		go forward(listeners[i], m.ClientAddress())
		go forward(listeners[members+i], m.PeerAddress())
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if c.Endpoints()[0] != "http://"+listeners[0].Addr().String() {
		t.Error(c.Endpoints())
	}
	put(t, ctx, c.Endpoints()[0], "k", "v")
	wantValue(t, ctx, c.Endpoints()[1], "k", "v")
}

func forward(from net.Listener, to string) {
	for {
		in, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = in.Close() }()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = out.Close() }()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

func TestAMemberThatEndsSaysWhy(t *testing.T) {
	ctx := guard(t)
	_, err := Start(ctx, Config{Flags: []string{"--no-such-flag"}})
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "no-such-flag") {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = Start(ctx, Config{Client: []string{l.Addr().String()}})
	if !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
}

func TestFlagsOverride(t *testing.T) {
	guard(t)
	c := New(t, Config{NoSync: true, Flags: []string{"--log-level=info", "--quota-backend-bytes=16777216", "--auto-compaction-retention=1s"}})
	var logs strings.Builder
	c.WriteLogs(&logs)
	text, err := os.ReadFile(c.Members()[0].LogPath())
	if err != nil || !strings.Contains(string(text), `"quota-backend-bytes":16777216`) || !strings.Contains(string(text), `"auto-compaction-retention":"1s"`) {
		t.Error(string(text), err)
	}
	if !strings.Contains(logs.String(), "m0.log") || len(logs.String()) > logTail+100 {
		t.Errorf("%d bytes of log: %s", len(logs.String()), logs.String())
	}
}

const orphanEnv = "ETCDTEST_ORPHAN"

// TestAnOrphanDies has a process start a member, kills it, and sees the member go.
func TestAnOrphanDies(t *testing.T) {
	if os.Getenv(orphanEnv) != "" { // this is that process
		c, err := Start(t.Context(), Config{NoSync: true, Dir: os.Getenv(orphanEnv)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("pid=%d\n", c.Members()[0].PID())
		select {}
	}
	ctx := guard(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("for Linux")
	}
	New(t, Config{NoSync: true}) // built
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestAnOrphanDies$")
	cmd.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "pid=%d\n", &pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := poll(ctx, "the member to die", func() (bool, error) {
		return syscall.Kill(pid, 0) != nil || isZombie(pid), nil
	}); err != nil {
		t.Error(err)
	}
}

// isZombie says whether the process is dead and only its parent does not know.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(text, []byte(") "))
	return err != nil || bytes.HasPrefix(after, []byte("Z"))
}
