package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// errCannot says that this machine does not let a disk be made.
var errCannot = errors.New("not allowed on this machine")

// fullDisk has a child fill a disk: one that is a limit of the child's, which every machine has, or a file system in memory,
// which takes the right to make a user namespace. It returns what the child says.
func fullDisk(kind, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=full %s %s", childEnv, kind, dir))
	if kind == "tmpfs" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	switch {
	case kind == "tmpfs" && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) || strings.Contains(complaint.String(), errCannot.Error())):
		return "", errCannot
	case err != nil:
		return "", fmt.Errorf("%w: %s", err, complaint.String())
	}
	return out.String(), nil
}

// room makes the disk of the child as large as said.
func room(kind, dir string, bytes uint64) error {
	if kind == "tmpfs" {
		flags := uintptr(0)
		if _, err := os.Stat(filepath.Join(dir, "store.db")); err == nil {
			flags = syscall.MS_REMOUNT
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%d", bytes)); err != nil {
			return fmt.Errorf("%w: mount: %w", errCannot, err)
		}
		return nil
	}
	signal.Ignore(syscall.SIGXFSZ) // so that the write fails, as it does when a disk is full
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	l.Cur = bytes
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
}

// fillDisk is the child: it fills the disk in two ways, and verifies that each commit which fails says why and changes nothing,
// and that everything goes on when there is room.
func fillDisk(kind, dir string) error {
	ctx := context.Background()
	if err := room(kind, dir, 3<<20); err != nil {
		return err
	}
	path := filepath.Join(dir, "store.db")
	s, err := boltstore.Open(ctx, path, boltstore.Options{})
	if err != nil {
		return err
	}
	e, err := ipset.New(s, ipset.Options{})
	if err == nil {
		err = pools(e)
	}
	if err != nil {
		return err
	}
	given := make(map[netip.Addr]string)
	refusals, err := assignUntilFull(ctx, e, given)
	if err != nil {
		return err
	}
	if err := same(ctx, e, given); err != nil {
		return fmt.Errorf("when it is full: %w", err)
	}
	full := len(given)
	if err := room(kind, dir, 64<<20); err != nil {
		return err
	}
	if _, err := assign(ctx, e, "when there is room", given); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = boltstore.Open(ctx, path, boltstore.Options{Verify: boltstore.VerifyAlways}); err != nil {
		return err
	}
	if e, err = ipset.New(s, ipset.Options{}); err != nil {
		return err
	}
	if err := same(ctx, e, given); err != nil {
		return fmt.Errorf("reopened: %w", err)
	}
	fmt.Printf("%d addresses given, then %d commits refused without a trace, and on when there was room\n", full, refusals)
	return s.Close()
}

// assign gives a handle an address with large attributes, and enters it.
func assign(ctx context.Context, e *ipset.Engine, handle string, given map[netip.Addr]string) (netip.Addr, error) {
	note, err := alloc.NewAttributes(map[string]string{"note": strings.Repeat(handle+" ", 3000)})
	if err != nil {
		return netip.Addr{}, err
	}
	got, err := e.AutoAssign(ctx, ipset.AssignArgs{Owner: alloc.HostOwner("host"), Num4: 1, Use: alloc.Workload,
		Claim: alloc.Claim{Handle: handle, Attributes: note}})
	if err != nil {
		return netip.Addr{}, err
	}
	given[got.V4[0].Address] = handle
	return got.V4[0].Address, nil
}

// assignUntilFull assigns until there is no room, and a few times more.
func assignUntilFull(ctx context.Context, e *ipset.Engine, given map[netip.Addr]string) (refusals int, err error) {
	for i := 0; refusals < 5; i++ {
		if i > 10000 {
			return 0, errors.New("it never fills")
		}
		_, err := assign(ctx, e, fmt.Sprint("handle ", i), given)
		switch {
		case errors.Is(err, ipalloc.ErrUnknownOutcome):
			return 0, fmt.Errorf("the outcome is unknown: %w", err)
		case errors.Is(err, boltstore.ErrNoSpace):
			refusals++
		case err != nil:
			return 0, err
		}
	}
	return refusals, nil
}

// same verifies that the store is consistent and holds what was given.
func same(ctx context.Context, e *ipset.Engine, given map[netip.Addr]string) error {
	rep, err := e.Operator().Check(ctx, nil)
	if err != nil || len(rep.Problems) > 0 {
		return fmt.Errorf("check: %v, %v", rep, err)
	}
	have := make(map[netip.Addr]string)
	for al, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		have[al.Address] = al.Handle
	}
	if !maps.Equal(have, given) {
		return fmt.Errorf("%d addresses are held, %d were given", len(have), len(given))
	}
	return nil
}
