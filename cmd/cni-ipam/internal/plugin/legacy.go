package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// host-local has a file for each address, named after it, with the container, CR LF, and the interface in it; files of
// its oldest versions have the container alone. Where set N goes on is in last_reserved_ip.N.

const (
	cursorPrefix = "last_reserved_ip."
	lineBreak    = "\r\n"
	maxContent   = 4096 // of a file, more than two names of the longest kind; what is longer was not written by host-local
)

// legacy is what host-local left in a directory.
type legacy struct {
	hostlocal.State
	files []string // that all this stands in
	empty []string // made by a host-local that was killed before it wrote who has the address
	stray []string // made by a call of this plugin that was killed
}

// fileName returns the name of the file of an address.
func fileName(a netip.Addr) string {
	if runtime.GOOS == "windows" {
		return strings.ReplaceAll(a.String(), ":", "_")
	}
	return a.String()
}

// parseFileName is the inverse of fileName.
func parseFileName(name string) (netip.Addr, bool) {
	text := name
	if runtime.GOOS == "windows" {
		text = strings.ReplaceAll(name, "_", ":")
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil && fileName(a) == name && !a.Is4In6() && a.Zone() == ""
}

// readLegacy reads what host-local left in a directory. What is not its own is left out.
func readLegacy(dir string) (*legacy, error) {
	d, err := openRead(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &legacy{State: hostlocal.State{Cursors: map[int]netip.Addr{}}}
	holdings := map[hostlocal.Attachment][]netip.Addr{}
	for _, name := range names {
		a, isAddr := parseFileName(name)
		set, isCursor := cursorSet(name)
		if name == guardName+".new" || name == "ipalloc.exported" || strings.HasPrefix(name, stateName+".") && strings.HasSuffix(name, ".new") {
			l.stray = append(l.stray, name)
		}
		if !isAddr && !isCursor {
			continue
		}
		content, err := readShort(dir + "/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch {
		case content == nil:
			logf("%s/%s is no file of host-local, left alone", dir, name)
		case isCursor:
			if a, err := netip.ParseAddr(string(content)); err == nil {
				l.Cursors[set] = a.Unmap()
			}
			l.files = append(l.files, name)
		default:
			who := parseHolder(string(content))
			if who == (hostlocal.Attachment{}) {
				l.empty = append(l.empty, name)
				continue
			}
			holdings[who] = append(holdings[who], a)
			l.files = append(l.files, name)
		}
	}
	for who, as := range holdings {
		l.Holdings = append(l.Holdings, hostlocal.Holding{Attachment: who, Addresses: as})
	}
	slices.SortFunc(l.Holdings, func(a, b hostlocal.Holding) int { return a.Attachment.Compare(b.Attachment) })
	return l, nil
}

// readShort reads a regular file that is not long; nil if it is something else.
func readShort(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxContent {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if b == nil {
		b = []byte{}
	}
	return b, err
}

// cursorSet returns the number of the set that a file tells the last address of.
func cursorSet(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, cursorPrefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == text
}

// parseHolder reads who has an address. What no attachment can be called, like a NUL byte, is replaced: such a name is never
// asked for, and its address stays taken until a GC.
func parseHolder(content string) hostlocal.Attachment {
	container, ifname, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(content), "\x00", "\uFFFD"), lineBreak)
	if container == "" && ifname != "" {
		container = "\uFFFD"
	}
	return hostlocal.Attachment{Container: container, Interface: ifname}
}

// legacyFiles calls do for each file that host-local would have of a state.
func legacyFiles(state hostlocal.State, do func(name, content string) error) error {
	for _, h := range state.Holdings {
		content := h.Attachment.Container
		if h.Attachment.Interface != "" {
			content += lineBreak + h.Attachment.Interface
		}
		for _, a := range h.Addresses {
			if err := do(fileName(a), content); err != nil {
				return err
			}
		}
	}
	for set, a := range state.Cursors {
		if err := do(cursorPrefix+strconv.Itoa(set), a.String()); err != nil {
			return err
		}
	}
	return nil
}

// releaseFiles is a DEL on a disk that is too full to take a network over: it removes the files of an attachment, as a call
// of host-local does, and releases what an interrupted takeover moved into the state.
func (p place) releaseFiles(who hostlocal.Attachment, release func(*state) error) error {
	lock, err := lockFile(p.file(lockName), false, true, lockWait)
	if err != nil {
		return err
	}
	defer lock.Close()
	if !p.guarded() {
		theirs, err := lockFile(p.file(guardName), false, true, lockWait)
		if err != nil {
			return err
		}
		defer theirs.Close()
	}
	l, err := readLegacy(p.dir)
	if err != nil {
		return err
	}
	of := func(who hostlocal.Attachment) int {
		return slices.IndexFunc(l.Holdings, func(h hostlocal.Holding) bool { return h.Attachment == who })
	}
	at := of(who)
	if at < 0 {
		at = of(hostlocal.Attachment{Container: who.Container})
	}
	if at >= 0 {
		for _, a := range l.Holdings[at].Addresses {
			if err := p.remove(fileName(a)); err != nil {
				return err
			}
		}
	}
	lock.Close()
	p.asIs = true
	return p.releasing(release)
}

// inTheWay reports whether a file is there with a content, and returns an error if something else
// is at its path. An empty file is from a call that was killed.
func inTheWay(path, content string) (done bool, err error) {
	have, err := readShort(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && (have == nil || len(have) > 0 && string(have) != content):
		return false, fmt.Errorf("%s is there with another content: see \"the file stays where it is\" in the log, and remove the one that is wrong", path)
	}
	return len(have) > 0, err
}

// checkLegacy returns an error if a file that writeLegacy would write is there with another content.
func checkLegacy(dir string, state hostlocal.State) error {
	return legacyFiles(state, func(name, content string) error {
		_, err := inTheWay(dir+"/"+name, content)
		return err
	})
}

// writeLegacy writes a state as host-local would have it. Files that are there with the same content
// stay. undo removes what was written.
func writeLegacy(dir string, state hostlocal.State) (undo func(), err error) {
	var made []string
	err = legacyFiles(state, func(name, content string) error {
		path := dir + "/" + name
		if done, err := inTheWay(path, content); err != nil || done {
			return err
		}
		made = append(made, path)
		return writeNew(path, content)
	})
	return func() {
		for _, path := range made {
			os.Remove(path)
		}
	}, err
}

// writeNew makes a small file, also in the place of another one. It never writes to what a link
// at its path names.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err = os.Remove(path); err == nil {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}
