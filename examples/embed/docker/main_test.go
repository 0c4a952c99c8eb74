package main

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/docker/docker/libnetwork/ipams/remote/api"
	"github.com/docker/docker/pkg/plugins"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// TestDriver calls the driver with Docker's own client and types: subnets, gateway and container addresses, a restart, refusals, and
// everything given back.
func TestDriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ipalloc.db")
	client, stop := start(t, file)
	var active struct{ Implements []string }
	if err := client.Call("Plugin.Activate", nil, &active); err != nil || len(active.Implements) != 1 || active.Implements[0] != "IpamDriver" {
		t.Fatalf("%v, %v", active, err)
	}
	call := func(method string, request, answer any) {
		t.Helper()
		if err := client.Call("IpamDriver."+method, request, answer); err != nil {
			t.Fatal(err)
		}
	}
	pool := func(r api.RequestPoolRequest, want string) string {
		t.Helper()
		var got api.RequestPoolResponse
		if call("RequestPool", r, &got); got.Pool != want || got.IsSuccess() != (want != "") {
			t.Fatalf("%+v: %+v, want %q", r, got, want)
		}
		return got.PoolID
	}
	address := func(id, named, want string) {
		t.Helper()
		var got api.RequestAddressResponse
		if call("RequestAddress", api.RequestAddressRequest{PoolID: id, Address: named}, &got); got.Address != want || got.IsSuccess() != (want != "") {
			t.Errorf("%s of %s: %+v, want %q", named, id, got, want)
		}
	}
	blue := pool(api.RequestPoolRequest{AddressSpace: "ipalloc"}, "172.16.0.0/24")
	six := pool(api.RequestPoolRequest{V6: true}, "fd00::/64")
	named := pool(api.RequestPoolRequest{Pool: "10.9.0.0/16", SubPool: "10.9.4.0/24"}, "10.9.0.0/16")
	pool(api.RequestPoolRequest{Pool: "10.9.1.0/24"}, "")  // in the one before
	pool(api.RequestPoolRequest{Pool: "192.0.2.0/24"}, "") // in no root
	address(blue, "", "172.16.0.1/24")
	address(six, "", "fd00::1/64")
	address(named, "", "10.9.4.0/16")
	address(blue, "172.16.0.9", "172.16.0.9/24")
	address(blue, "172.16.0.9", "")

	stop()
	client, stop = start(t, file)
	defer stop()
	address(blue, "", "172.16.0.2/24")
	var held, freed, done api.ReleasePoolResponse
	if call("ReleasePool", api.ReleasePoolRequest{PoolID: blue}, &held); held.IsSuccess() {
		t.Error("a subnet with addresses was given back")
	}
	for _, a := range []string{"172.16.0.1", "172.16.0.2", "172.16.0.9"} {
		call("ReleaseAddress", api.ReleaseAddressRequest{PoolID: blue, Address: a}, &freed)
	}
	if call("ReleasePool", api.ReleasePoolRequest{PoolID: blue}, &done); !done.IsSuccess() {
		t.Error(done.Error)
	}
	pool(api.RequestPoolRequest{}, "172.16.0.0/24")
}

// start serves the driver on a socket, and returns Docker's client of it.
func start(t *testing.T, file string) (*plugins.Client, func()) {
	t.Helper()
	db, err := boltstore.Open(t.Context(), file, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "ipalloc.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d}
	go server.Serve(l)
	client, err := plugins.NewClient("unix://"+socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, func() {
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
