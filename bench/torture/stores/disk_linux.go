package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// ownMounts marks a process that may mount file systems which no other program sees.
const ownMounts = "TORTURE_STORES_MOUNTS"

// errNoDisk says that this machine does not let a disk be made.
var errNoDisk = errors.New("this machine lets no disk be made")

// contained runs the program again with mounts of its own, so that a disk can be filled without harm, and returns its exit
// status. It reports false in that program, and where the machine does not allow it.
func contained() (status int, done bool) {
	if os.Getenv(ownMounts) != "" {
		return 0, false
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), ownMounts+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		const mayMount = 21 // CAP_SYS_ADMIN
		cmd.SysProcAttr.Cloneflags, cmd.SysProcAttr.AmbientCaps = syscall.CLONE_NEWUSER, []uintptr{mayMount}
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
	runtime.LockOSThread() // the child dies with this thread
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := cmd.Start(); err != nil {
		signal.Reset(os.Interrupt)
		return 0, false
	}
	if err := cmd.Wait(); err != nil {
		return max(1, cmd.ProcessState.ExitCode()), true
	}
	return 0, true
}

// mount makes dir a disk of so many bytes.
func mount(dir string, bytes int) error {
	if os.Getenv(ownMounts) == "" {
		return errNoDisk
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0777", bytes)); err != nil {
		return fmt.Errorf("%w: %w", errNoDisk, err)
	}
	return nil
}

// unmount takes the disk away.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
