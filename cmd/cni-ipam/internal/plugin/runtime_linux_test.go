package plugin

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

// cri is a containerd with runc in a mount and network namespace of its own, which calls plugins as on a node of Kubernetes.
type cri struct {
	*testing.T
	dir, bin string // of everything, and of the plugins
	daemon   *exec.Cmd
	conn     *grpc.ClientConn
	mu       sync.Mutex
	told     map[string]string // the sandboxes and what the runtime says of their address
}

const criConf = `version = 2
root = "DIR/root"
state = "DIR/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "DIR/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "ipalloc.test/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "DIR/bin"
    conf_dir = "DIR/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
`

const criNetwork = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"ipalloc0","isGateway":true,
"ipam":{"type":"host-local","dataDir":"DIR/networks","ranges":[[{"subnet":"10.77.0.0/24"}]]}}]}`

// newCRI starts a runtime, or skips the test where there is none.
func newCRI(t *testing.T) *cri {
	for _, program := range []string{"containerd", "runc", "ctr", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("SKIPPED, there is no containerd with runc here:", err)
		}
	}
	if err := exec.Command("unshare", "-m", "-n", "true").Run(); err != nil {
		t.Skip("SKIPPED, namespaces can't be made here:", err)
	}
	dir := t.TempDir()
	r := &cri{T: t, dir: dir, bin: filepath.Join(dir, "bin"), told: map[string]string{}}
	here := strings.NewReplacer("DIR", dir)
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "net.d"), 0o755), os.Mkdir(r.bin, 0o755), os.Mkdir(filepath.Join(dir, "networks"), 0o755),
		os.WriteFile(filepath.Join(dir, "config.toml"), []byte(here.Replace(criConf)), 0o600),
		os.WriteFile(filepath.Join(dir, "net.d", "10-pods.conflist"), []byte(here.Replace(criNetwork)), 0o600))
	for _, name := range []string{binaries.HostLocal, binaries.Bridge, binaries.Loopback} {
		err = errors.Join(err, copyFile(other(t, name), filepath.Join(r.bin, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	t.Cleanup(r.stop)
	image := pauseImage(t, dir)
	if out, err := exec.Command("ctr", "-a", filepath.Join(dir, "c.sock"), "-n", "k8s.io", "images", "import", "--snapshotter", "native", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// start starts the daemon in its namespaces, whose /run is its own.
func (r *cri) start() {
	r.Helper()
	r.daemon = exec.Command("unshare", "-m", "-n", "sh", "-c", `mount -t tmpfs none /run && ip link set lo up; exec containerd -c "$0" -l warn`, filepath.Join(r.dir, "config.toml"))
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		r.Fatal(err)
	}
	r.daemon.Stdout, r.daemon.Stderr = log, log
	r.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.daemon.Start(); err != nil {
		r.Fatal(err)
	}
	if r.conn, err = grpc.NewClient("unix://"+filepath.Join(r.dir, "c.sock"), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		r.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, err := r.call("Version", nil)
		if err == nil {
			return
		}
		if time.Since(began) > time.Minute {
			text, _ := os.ReadFile(log.Name())
			r.Fatalf("containerd does not start: %v\n%s", err, text)
		}
	}
}

// stop ends the daemon and every sandbox that is left.
func (r *cri) stop() {
	for id := range r.told {
		r.end(id)
	}
	r.conn.Close()
	syscall.Kill(-r.daemon.Process.Pid, syscall.SIGKILL)
	r.daemon.Wait()
}

// pauseImage writes an image whose only program sleeps.
func pauseImage(t *testing.T, dir string) (path string) {
	t.Helper()
	source := filepath.Join(dir, "pause.go")
	pause := filepath.Join(dir, "pause")
	if err := os.WriteFile(source, []byte("package main\n\nimport \"time\"\n\nfunc main() { time.Sleep(1 << 62) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", pause, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(pause)
	if err != nil {
		t.Fatal(err)
	}
	pack := func(files ...any) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			content := files[i+1].([]byte)
			err = errors.Join(err, w.WriteHeader(&tar.Header{Name: files[i].(string), Mode: 0o755, Size: int64(len(content))}))
			_, e := w.Write(content)
			err = errors.Join(err, e)
		}
		err = errors.Join(err, w.Close())
		return b.Bytes()
	}
	layer := pack("pause", program)
	conf := fmt.Sprintf(`{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/pause"]},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, sha256.Sum256(layer))
	manifest := `[{"Config":"config.json","RepoTags":["ipalloc.test/pause:1"],"Layers":["layer.tar"]}]`
	path = filepath.Join(dir, "image.tar")
	if err = errors.Join(err, os.WriteFile(path, pack("manifest.json", []byte(manifest), "config.json", []byte(conf), "layer.tar", layer), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// raw sends and receives messages that are encoded already.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }

// call makes a call of the runtime service.
func (r *cri) call(method string, message []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	err = r.conn.Invoke(ctx, "/runtime.v1.RuntimeService/"+method, &message, &answer, grpc.ForceCodec(raw{}))
	return answer, err
}

// encoded encodes a field of a message.
func encoded(n protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), value)
}

// find returns a field of a message, down a path.
func find(message []byte, path ...protowire.Number) []byte {
	for _, want := range path {
		var found []byte
		for len(message) > 0 {
			n, kind, used := protowire.ConsumeTag(message)
			size := protowire.ConsumeFieldValue(n, kind, message[max(used, 0):])
			if used < 0 || size < 0 {
				return nil
			}
			if n == want && kind == protowire.BytesType {
				found, _ = protowire.ConsumeBytes(message[used:])
			}
			message = message[used+size:]
		}
		message = found
	}
	return message
}

// run starts sandboxes at once.
func (r *cri) run(name string, count int) {
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			pod := fmt.Sprint(name, "-", i)
			metadata := bytes.Join([][]byte{encoded(1, pod), encoded(2, pod), encoded(3, "default")}, nil)
			config := append(encoded(1, string(metadata)), encoded(3, r.dir)...)
			config = append(config, encoded(8, string(encoded(2, "")))...) // for Linux, with a security context
			got, err := r.call("RunPodSandbox", encoded(1, string(config)))
			if err != nil {
				r.Errorf("%s: %v", pod, err)
				return
			}
			id := string(find(got, 1))
			status, err := r.call("PodSandboxStatus", encoded(1, id))
			if err != nil {
				r.Errorf("%s: %v", pod, err)
			}
			r.mu.Lock()
			r.told[id] = string(find(status, 1, 5, 1)) // status.network.ip
			r.mu.Unlock()
		})
	}
	wg.Wait()
}

// end ends a sandbox.
func (r *cri) end(id string) {
	_, err := r.call("StopPodSandbox", encoded(1, id))
	if err == nil {
		_, err = r.call("RemovePodSandbox", encoded(1, id))
	}
	if err != nil {
		r.Errorf("%s: %v", id, err)
	}
}

// endSome ends every n-th sandbox.
func (r *cri) endSome(n int) {
	var wg sync.WaitGroup
	for i, id := range strings.Fields(strings.Join(mapKeys(r.told), " ")) {
		if i%n == 0 {
			delete(r.told, id)
			wg.Go(func() { r.end(id) })
		}
	}
	wg.Wait()
}

func mapKeys(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// compare compares what the runtime says with what the plugin in place holds.
func (r *cri) compare(step string) {
	r.Helper()
	n := &node{TB: r, dir: filepath.Join(r.dir, "networks"), bin: ours(r)}
	held := map[string]string{}
	s := n.state("pods")
	s.Holdings = append(s.Holdings, n.files("pods").Holdings...)
	for _, h := range s.Holdings {
		held[h.Attachment.Container] = netip.Addr.String(h.Addresses[0])
	}
	if !maps.Equal(held, r.told) {
		r.Errorf("%s: %d are held and the runtime has %d: %v, want %v", step, len(held), len(r.told), held, r.told)
	}
}

// TestRealRuntime swaps the plugin in under containerd and runc, updates it, starts many pods at once, reboots and swaps back.
func TestRealRuntime(t *testing.T) {
	pods := 100
	if testing.Short() {
		pods = 12
	}
	r := newCRI(t)
	m := &node{TB: t, dir: filepath.Join(r.dir, "networks"), bin: ours(t)}
	command := func(args ...string) {
		t.Helper()
		if a := m.word(args...); a.code != 0 {
			t.Fatalf("%v: %+v", args, a)
		}
	}
	r.run("before", 3)
	r.compare("host-local")
	command("install", r.bin)
	r.run("many", pods)
	r.compare("swapped in")
	r.endSome(2)
	r.compare("half of them ended")
	m.bin = edition(t, "12").bin // the next version
	if a := m.shownBy("install", "-data-dir", m.dir, r.bin); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	r.run("updated", 3)
	r.compare("updated")
	if t.Failed() {
		return
	}
	// A reboot: nothing runs, and the runtime deletes what it finds afterwards.
	link := filepath.Join(m.dir, "pods", bootName)
	if err := errors.Join(os.Remove(link), os.Symlink("01234567-89ab-cdef-0123-456789abcdef", link)); err != nil {
		t.Fatal(err)
	}
	r.endSome(3)
	r.run("rebooted", 3)
	r.compare("rebooted")
	m.bin = ours(t)
	command("uninstall", r.bin)
	r.run("back", 3)
	r.endSome(2)
	r.compare("swapped back")
}
