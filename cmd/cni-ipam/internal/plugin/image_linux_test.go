package plugin

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// daemonSet is what the tests need of deploy/daemonset.yaml.
type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args         []string
					VolumeMounts []struct{ Name, MountPath string }
				}
				Volumes []struct {
					Name     string
					HostPath struct{ Path string }
				}
			}
		}
	}
}

func readDaemonSet(t *testing.T) (d daemonSet) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDaemonSetManifests sends the manifests to a real API server, which refuses fields that it
// does not know. A label sets the pace of the way in, and many nodes at a time go back.
func TestDaemonSetManifests(t *testing.T) {
	server := servers.NewKube(t, servers.KubeOptions{})
	for name, pace := range map[string]string{"daemonset.yaml": `cni-ipam: "yes"}`, "swap-back.yaml": "maxUnavailable: 10%"} {
		text, err := os.ReadFile("../../deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Request(t.Context(), http.MethodPost, "/apis/apps/v1/namespaces/kube-system/daemonsets?dryRun=All&fieldValidation=Strict", string(text))
		if err != nil || !strings.Contains(answer, `"uid"`) {
			t.Errorf("%s: %s, %v", name, answer, err)
		}
		for _, want := range []string{"automountServiceAccountToken: false", "seccompProfile: {type: RuntimeDefault}", pace} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
}

// container runs what the image runs, with the arguments and the mounts of the DaemonSet: a
// root with nothing but the two programs and /proc, which cannot be written.
const container = `set -e
mount --bind "$ROOT" "$ROOT"
mount --bind "$HOST" "$ROOT$MOUNT"
mount --rbind /proc "$ROOT/proc"
mount -o remount,ro,bind "$ROOT"
exec chroot "$ROOT" /cni-ipam "$@"`

func TestImage(t *testing.T) {
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		t.Skip("SKIPPED, namespaces can't be made here:", err)
	}
	n := bothNode(t)
	spec := readDaemonSet(t).Spec.Template.Spec
	mount, host := spec.Containers[0].VolumeMounts[0], spec.Volumes[0]
	if mount.Name != host.Name || host.HostPath.Path != "/opt/cni/bin" || mount.MountPath != "/host"+host.HostPath.Path || !slices.Contains(spec.Containers[0].Args, host.HostPath.Path) {
		t.Fatalf("%+v", spec)
	}
	root, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"cni-ipam", sharedName} {
		if err := copyFile(filepath.Join(filepath.Dir(n.bin), name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, mount.MountPath), 0o755), os.Mkdir(filepath.Join(root, "proc"), 0o755),
		os.MkdirAll(filepath.Join(root, "host", filepath.Dir(n.bin), "networks"), 0o755)); err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(bin, "host-local")
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	args := slices.Clone(spec.Containers[0].Args)
	args[slices.Index(args, "1m")] = "50ms"
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", container, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "ROOT="+root, "HOST="+bin, "MOUNT="+mount.MountPath)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	installed := func(name string) bool {
		same, err := sameContent(n.bin, filepath.Join(bin, name))
		return err == nil && same
	}
	for range 2 { // the second time after another installer
		for began := time.Now(); !installed("host-local"); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				cmd.Process.Kill()
				cmd.Wait()
				t.Fatalf("not installed: %s", log.String())
			}
		}
		node := newNode(t, plugin)
		if got := node.first("c", conf("net", one24)); got != "10.1.2.2/24" {
			t.Errorf("got %s", got)
		}
		next := filepath.Join(t.TempDir(), "host-local") // put in place at once, as a package manager does
		if err := errors.Join(os.WriteFile(next, []byte("another"), 0o755), os.Rename(next, plugin)); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if same, err := sameContent(filepath.Join(root, sharedName), filepath.Join(bin, sharedName)); err != nil || !same {
		t.Errorf("%s is not installed: %v", sharedName, err)
	}
	if b, _ := os.ReadFile(plugin + ".original"); string(b) != "another" {
		t.Errorf("kept %q", b)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 4 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestInstallWithFewCapabilities runs the installer as the DaemonSet has it, as root with two
// capabilities, in a directory of another user.
func TestInstallWithFewCapabilities(t *testing.T) {
	n, bin := bothNode(t), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(bin, "host-local"), []byte("original"), 0o755), os.Chown(filepath.Join(bin, "host-local"), 1000, 1000), os.Chown(bin, 1000, 1000)); err != nil {
		t.Skip("SKIPPED, the owner of a file cannot be changed here:", err)
	}
	caps := []string{"--bounding-set=-all,+dac_override,+fowner", "--inh-caps=-all", "--no-new-privs"}
	if err := exec.Command("setpriv", append(caps, "true")...).Run(); err != nil {
		t.Skip("SKIPPED, capabilities can't be dropped here:", err)
	}
	out, err := exec.Command("setpriv", append(caps, n.bin, "install", bin)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if same, err := sameContent(n.bin, filepath.Join(bin, "host-local")); err != nil || !same {
		t.Errorf("not installed: %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(bin, "host-local.original")); string(b) != "original" {
		t.Errorf("kept %q", b)
	}
}
