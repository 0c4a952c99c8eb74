package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// pluginDir returns a directory of plugins with this one under host-local's name, as after a swap, and others beside it.
func pluginDir(t *testing.T, others ...string) string {
	t.Helper()
	dir := t.TempDir()
	link := func(path, name string) {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(ours(t), "host-local")
	for _, name := range others {
		link(other(t, name), name)
	}
	return dir
}

// codeOf returns the code of a plugin's error.
func codeOf(err error) uint {
	var e *types.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// TestLibcni has the library that container runtimes use call the plugin.
func TestLibcni(t *testing.T) {
	ctx := t.Context()
	n := newNode(t, ours(t))
	cni := libcni.NewCNIConfigWithCacheDir([]string{pluginDir(t)}, t.TempDir(), nil)
	list, err := libcni.NetworkConfFromBytes([]byte(strings.ReplaceAll(`{"cniVersion":"1.1.0","name":"net","plugins":[
		{"type":"host-local","capabilities":{"ips":true,"ipRanges":true},"ipam":{"type":"host-local","dataDir":"%DIR%","statusFull":true,"ranges":[[{"subnet":"10.1.2.0/29"}]]}}]}`, "%DIR%", n.dir)))
	if err != nil {
		t.Fatal(err)
	}
	attach := func(container string) *libcni.RuntimeConf {
		return &libcni.RuntimeConf{ContainerID: container, NetNS: "/no/such/namespace", IfName: "eth0"}
	}
	add := func(rt *libcni.RuntimeConf) string {
		t.Helper()
		r, err := cni.AddNetworkList(ctx, list, rt)
		if err != nil {
			t.Fatal(err)
		}
		result, err := current.NewResultFromResult(r)
		if err != nil || len(result.IPs) != 1 {
			t.Fatal(result, err)
		}
		return result.IPs[0].Address.String()
	}
	if err := cni.GetStatusNetworkList(ctx, list); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if got, want := add(attach(fmt.Sprint("c", i))), fmt.Sprintf("10.1.2.%d/29", i+2); got != want {
			t.Fatal(got, want)
		}
	}
	asked := attach("asked")
	asked.CapabilityArgs = map[string]any{"ips": []string{"10.1.2.6/29"}}
	if got := add(asked); got != "10.1.2.6/29" {
		t.Fatal(got)
	}
	// It is full: STATUS says so, and ADD is worth another try.
	if err := cni.GetStatusNetworkList(ctx, list); codeOf(err) != types.ErrPluginNotAvailable {
		t.Fatal(err)
	}
	if _, err := cni.AddNetworkList(ctx, list, attach("late")); codeOf(err) != types.ErrTryAgainLater {
		t.Fatal(err)
	}
	// CHECK compares with the cached result.
	if err := cni.CheckNetworkList(ctx, list, attach("c0")); err != nil {
		t.Fatal(err)
	}
	n.must(del1("c0", conf("net", `"ranges":[[{"subnet":"10.1.2.0/29"}]]`)))
	if err := cni.CheckNetworkList(ctx, list, attach("c0")); err == nil {
		t.Fatal("CHECK finds what is gone")
	}
	n.must(add1("c0", conf("net", `"ranges":[[{"subnet":"10.1.2.0/24"}]]`))) // another address than the cached one
	if err := cni.CheckNetworkList(ctx, list, attach("c0")); err == nil {
		t.Fatal("CHECK does not look at the address")
	}
	gcByLibcni(t, n, cni, list)
}

// gcByLibcni verifies that GC frees what is not in the list, also what libcni does not know of.
func gcByLibcni(t *testing.T, n *node, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) {
	t.Helper()
	ctx := t.Context()
	n.must(add1("lost", conf("net", one24)))
	valid := []types.GCAttachment{{ContainerID: "c1", IfName: "eth0"}, {ContainerID: "c2", IfName: "eth0"}}
	if err := cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, h := range n.state("net").Holdings {
		left = append(left, h.Attachment.Container)
	}
	if !slices.Equal(left, []string{"c1", "c2"}) {
		t.Fatal(left)
	}
	for range 2 {
		if err := cni.DelNetworkList(ctx, list, &libcni.RuntimeConf{ContainerID: "c1", NetNS: "/no/such/namespace", IfName: "eth0"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cni.GCNetworkList(ctx, list, &libcni.GCArgs{}); err != nil { // a list without entries
		t.Fatal(err)
	}
	if s := n.state("net"); len(s.Holdings) != 0 {
		t.Fatal(s)
	}
}
