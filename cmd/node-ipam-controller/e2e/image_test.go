//go:build e2e && linux

package e2e

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// image builds the program as a release does and runs it as the Dockerfile's user in
// a root directory that holds nothing else but a kubeconfig: without a docker, this is
// what the image is. It makes the program that all scenarios run.
func (r *run) image() {
	data, err := os.ReadFile("../Dockerfile")
	if err != nil {
		r.Fatal(err)
	}
	script, err := os.ReadFile("../../../.ci/build")
	if err != nil {
		r.Fatal(err)
	}
	build := regexp.MustCompile(`(?s)(CGO_ENABLED=0) go (build .*) -o "\$out/`).FindStringSubmatch(string(script))
	r.user = regexp.MustCompile(`(?m)^USER (\d+):`).FindStringSubmatch(string(data))
	entry := regexp.MustCompile(`(?m)^ENTRYPOINT \["(\S+)"\]$`).FindStringSubmatch(string(data))
	if build == nil || r.user == nil || entry == nil || entry[1] != "/node-ipam-controller" {
		r.Fatalf("Dockerfile and .ci/build: %q %q %q", build, r.user, entry)
	}
	root, err := os.MkdirTemp("", "image")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		r.Fatal(err)
	}
	r.program = filepath.Join(root, entry[1])
	cmd := exec.Command("sh", "-c", "go "+build[2]+" -o "+r.program+" .")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), build[1], "VERSION=v1.2.3-e2e")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
	binary, err := elf.Open(r.program)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			r.Errorf("the program is not static: %v", p.ProgHeader)
		}
	}
}

// runImage runs what image built in its root.
func (r *run) runImage() {
	root := filepath.Dir(r.program)
	config, err := os.ReadFile(r.direct)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "kubeconfig"), config, 0o644)
	}
	if err != nil {
		r.Fatal(err)
	}
	id, err := strconv.Atoi(r.user[1])
	if err != nil {
		r.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"-version", "node-ipam-controller v1.2.3-e2e "},
		{"-kubeconfig /kubeconfig -dry-run -cluster-cidr " + clusterCIDRs, "0 things are wrong\n"},
	} {
		cmd := exec.Command("/"+filepath.Base(r.program), strings.Fields(c.args)...)
		cmd.Env, cmd.Dir = []string{}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id), NoSetGroups: true}}
		if os.Getuid() != 0 { // in a namespace of users the caller is that one
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getgid(), Size: 1}}}
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if errors.Is(err, syscall.EPERM) {
			r.Skipf("SKIPPED, namespaces can't be made here: %v", err)
		}
		if err != nil || !strings.Contains(out.String(), c.want) {
			r.Errorf("%s: %v\n%s", c.args, err, out.String())
		}
	}
}
