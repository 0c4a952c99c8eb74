package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
)

const usage = `cni-ipam is a CNI plugin: a runtime calls it with CNI_COMMAND in the environment.
A person may call it with one of these words:

  cni-ipam show   [-data-dir DIR] [NETWORK...]  what each network holds
  cni-ipam check  [-data-dir DIR] [NETWORK...]  read everything and compare it with itself
  cni-ipam export [-data-dir DIR] [-n] [NETWORK...]
                    give the state back to host-local, as files in its form; until an import, this
                    plugin leaves such a network alone. -n only says what would be done
  cni-ipam import [-data-dir DIR] [-n] [NETWORK...]
                    take over what host-local left, as the first call of a runtime does by itself, also
                    after an export

Without NETWORK, all networks in DIR (default %s).
`

// networks is what a word of the tool works on.
type networks struct {
	dataDir string
	dryRun  bool
	names   []string
	stdout  io.Writer
}

// tool carries out a word and returns the exit status: 2 if it is not one, 1 if it fails.
func tool(args []string, stdout, stderr io.Writer) int {
	words := map[string]func(*networks, string) error{
		"show": (*networks).show, "check": (*networks).check, "export": (*networks).export, "import": (*networks).takeOver,
	}
	word := words[args[0]]
	n := &networks{stdout: stdout}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprintf(stderr, usage, defaultDataDir) }
	flags.StringVar(&n.dataDir, "data-dir", defaultDataDir, "")
	if args[0] == "export" || args[0] == "import" {
		flags.BoolVar(&n.dryRun, "n", false, "")
	}
	if word == nil {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	var err error
	if n.names = flags.Args(); len(n.names) == 0 {
		n.names, err = listNetworks(n.dataDir)
	}
	for _, name := range n.names {
		if !plainName(name) {
			err = errors.Join(err, fmt.Errorf("%q: not the name of a network", name))
		} else if e := word(n, name); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "cni-ipam:", err)
		return 1
	}
	return 0
}

// listNetworks returns the names of the directories in a data directory.
func listNetworks(dataDir string) (names []string, err error) {
	entries, err := os.ReadDir(dataDir)
	for _, e := range entries {
		if e.IsDir() && plainName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// place returns where a network is. It must be there: a word that is mistyped makes nothing.
func (n *networks) place(name string) (place, error) {
	p := place{dir: filepath.Join(n.dataDir, name), network: name}
	p.boot, _ = readBootID(defaultBootID)
	_, err := os.Stat(p.dir)
	return p, err
}

func (n *networks) open(name string) (*state, error) {
	p, err := n.place(name)
	if err != nil {
		return nil, err
	}
	return p.open()
}

// show prints who holds what.
func (n *networks) show(name string) error {
	s, err := n.open(name)
	if err != nil {
		return err
	}
	all, err := s.engine.Export(context.Background())
	if err = errors.Join(err, s.close()); err != nil {
		return err
	}
	w := tabwriter.NewWriter(n.stdout, 0, 0, 2, ' ', 0)
	for _, h := range all.Holdings {
		for _, a := range h.Addresses {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, a, h.Attachment.Container, h.Attachment.Interface)
		}
	}
	return w.Flush()
}

// check reads a network as a whole.
func (n *networks) check(name string) error {
	p, err := n.place(name)
	if err != nil {
		return err
	}
	p.verify = true
	s, err := p.open()
	if err != nil {
		return err
	}
	err = s.engine.Check(context.Background())
	if err = errors.Join(err, s.close()); err == nil {
		fmt.Fprintf(n.stdout, "%s: ok\n", name)
	}
	return err
}

// export writes a network back. The marker comes first: from then on no call of this plugin changes anything, and the
// state file goes last. If it is interrupted in between, repeating it goes on.
func (n *networks) export(name string) error {
	p, err := n.place(name)
	if err != nil {
		return err
	}
	if n.dryRun {
		return n.show(name)
	}
	s, err := p.open()
	if errors.Is(err, errExported) {
		return p.finishExport(n.stdout)
	}
	if err != nil {
		return err
	}
	defer s.close()
	marker := "The state of this network was given back to host-local. \"cni-ipam import\" takes it over again.\n"
	if err := os.WriteFile(s.file(exportedName), []byte(marker), 0o600); err != nil {
		return err
	}
	return s.writeBack(n.stdout)
}

// finishExport goes on with an export that was interrupted; if there is none, nothing is left to do.
func (p place) finishExport(out io.Writer) error {
	s := &state{place: p, exporting: true}
	err := s.openLocked()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "%s: was written back before\n", p.network)
		err = nil
	} else if err == nil {
		err = s.writeBack(out)
	}
	return errors.Join(err, s.close())
}

// writeBack writes the files of host-local and removes the state.
func (s *state) writeBack(out io.Writer) error {
	all, err := s.engine.Export(context.Background())
	if err != nil {
		return err
	}
	if err := writeLegacy(s.dir, all); err != nil {
		return err
	}
	for _, name := range []string{bootName, stateName} {
		if err := os.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	fmt.Fprintf(out, "%s: wrote back %d attachments\n", s.network, len(all.Holdings))
	return nil
}

// takeOver imports what host-local left, also after an export.
func (n *networks) takeOver(name string) error {
	p, err := n.place(name)
	if err != nil {
		return err
	}
	if n.dryRun {
		l, err := readLegacy(p.dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(n.stdout, "%s: would take over %d attachments from %d files, and free %d addresses that nobody has\n", name, len(l.Holdings), len(l.files), len(l.empty))
		return nil
	}
	if err := os.Remove(filepath.Join(p.dir, exportedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s, err := p.open()
	if err != nil {
		return err
	}
	all, err := s.engine.Export(context.Background())
	if err = errors.Join(err, s.close()); err == nil {
		fmt.Fprintf(n.stdout, "%s: holds %d attachments\n", name, len(all.Holdings))
	}
	return err
}
