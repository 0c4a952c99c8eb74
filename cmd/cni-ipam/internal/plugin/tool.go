package plugin

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/cmd/internal/version"
)

const usage = `cni-ipam is a CNI plugin: a runtime calls it with CNI_COMMAND in the environment.
A person calls it with one of these words. show, check and -n change nothing.

Of a network that nodes share, -conf FILE names the configuration, of a plugin or a list.
show, check, gc, free and export take it.

  show   [-o json] [NETWORK...]
                   what each network holds, whichever plugin has it
  check  [NETWORK...]
                   read everything and compare it with itself
  import [-n] [-finish] [NETWORK...]
                   take over what host-local left, as the first call of a runtime does by
                   itself, also after an export; -finish removes the files that were taken over
  export [-n] [NETWORK...]
                   give networks back to host-local, as files in its form; until an import,
                   this plugin leaves them alone. With -conf FILE, end the sharing on this
                   node, which must hold nothing in the store
  gc     [-n] [-max SHARE] -keep FILE NETWORK...
                   release the attachments of containers that are not in FILE, one id a line and
                   "# end" as the last one; "-" is standard input. Only attachments that were held
                   before FILE was made are released, and none if that are more than SHARE of what
                   is held, a number or by default 5%%. Of a shared network, those that this node added,
                   and FILE must be "-"
  free   [-n] NETWORK ADDRESS|CONTAINER
                   release the attachment that holds an address, or those of a container
  repair [-n] [-lost] NETWORK...
                   save what can be read of a damaged state into a new file; with -lost, begin
                   anew if that is nothing
  install [-every TIME] DIR
                   put this program into DIR under the name host-local, and keep what was there as
                   host-local.original; -every looks again, until it is stopped
  uninstall [-n] [-every TIME] DIR
                   give all networks back, and put host-local.original in its place again: everything,
                   or nothing if a network or the program cannot be. -data-dir may be repeated
  version

Each takes -data-dir DIR, by default %s. Without NETWORK, all networks in DIR.
`

// word is one call by a person.
type word struct {
	name     string
	dataDir  string
	dataDirs []string // of an uninstall
	dryRun   bool
	finish   bool
	lost     bool
	json     bool
	keep     string
	most     string
	conf     *netConf // of a shared network
	every    time.Duration
	program  string // the last line of the marker of what an uninstall gives back: where this program is

	stdin  io.Reader
	stdout io.Writer
}

// words are what a person may call.
var words = map[string]func(*word, []string) error{
	"show": (*word).show, "check": each((*word).check), "export": each((*word).export), "import": each((*word).takeOver),
	"gc": (*word).gc, "free": (*word).free, "repair": (*word).repair, "version": (*word).version,
	"install": repeated((*word).install), "uninstall": repeated((*word).uninstall),
}

// tool carries out a word and returns the exit status: 2 if it is none, 1 if it fails.
func tool(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	w := &word{name: args[0], stdin: stdin}
	do := words[w.name]
	flags := flag.NewFlagSet(w.name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprintf(stderr, usage, defaultDataDir) }
	w.dataDir = defaultDataDir
	flags.Func("data-dir", "", func(dir string) error {
		if w.dataDir = dir; len(w.dataDirs) > 0 && w.name != "uninstall" {
			return errors.New("only uninstall takes more than one")
		}
		w.dataDirs = append(w.dataDirs, dir)
		return nil
	})
	takes := func(words ...string) bool { return slices.Contains(words, w.name) }
	if takes("show", "check", "gc", "free", "export") {
		flags.Func("conf", "", func(path string) (err error) {
			if w.conf, err = readConfFile(path); err == nil {
				err = w.conf.complete()
			}
			if err == nil && w.conf.shared == nil {
				err = errors.New("names no store: use -data-dir")
			}
			return err
		})
	}
	if takes("import", "export", "free", "repair", "gc", "uninstall") {
		flags.BoolVar(&w.dryRun, "n", false, "")
	}
	if takes("install", "uninstall") {
		flags.DurationVar(&w.every, "every", 0, "")
	}
	switch w.name {
	case "import":
		flags.BoolVar(&w.finish, "finish", false, "")
	case "repair":
		flags.BoolVar(&w.lost, "lost", false, "")
	case "gc":
		flags.StringVar(&w.keep, "keep", "", "")
		flags.StringVar(&w.most, "max", "5%", "")
	case "show":
		flags.Func("o", "", func(form string) error {
			if w.json = form == "json"; !w.json {
				return errors.New("the only form is json")
			}
			return nil
		})
	}
	if do == nil {
		flags.Usage()
		return 2
	}
	names, err := parse(flags, args[1:])
	if err != nil {
		return 2
	}
	if w.conf != nil && openRemote == nil {
		fmt.Fprintln(stderr, "cni-ipam:", handOver(args, nil))
		return 1
	}
	out := &said{Writer: stdout}
	w.stdout = out
	if err := errors.Join(do(w, names), out.err); err != nil {
		fmt.Fprintln(stderr, "cni-ipam:", err)
		return 1
	}
	return 0
}

// said is an output that remembers its first error.
type said struct {
	io.Writer
	err error
}

func (s *said) Write(b []byte) (int, error) {
	n, err := s.Writer.Write(b)
	s.err = cmp.Or(s.err, err)
	return n, err
}

// parse reads flags wherever they stand: one that was taken for a name would turn a dry run
// into a change. It returns the other arguments.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for err = flags.Parse(args); err == nil && flags.NArg() > 0; err = flags.Parse(flags.Args()[1:]) {
		names = append(names, flags.Arg(0))
	}
	return names, err
}

// version prints what was built.
func (w *word) version([]string) error {
	program, goVersion := version.Of()
	_, err := fmt.Fprintf(w.stdout, "%s %s %s\n", about, program, goVersion)
	return err
}

// each does something for each of the networks that are named, or for all. It looks at all
// names before it touches the first network.
func each(do func(*word, string) error) func(*word, []string) error {
	return func(w *word, names []string) error {
		names, err := w.named(names)
		if err != nil {
			return err
		}
		for _, name := range names {
			if e := do(w, name); e != nil {
				err = errors.Join(err, fmt.Errorf("network %s: %w", name, e))
			}
		}
		return err
	}
}

// named returns the networks that are named, or all. Each must be there: a word that is
// mistyped makes nothing.
func (w *word) named(names []string) ([]string, error) {
	if len(names) == 0 {
		return w.networks()
	}
	for _, name := range names {
		switch {
		case !plainName(name):
			return nil, fmt.Errorf("%q is not the name of a network", name)
		case w.conf != nil && name != w.conf.Name:
			return nil, fmt.Errorf("-conf names the network %s, not %s", w.conf.Name, name)
		case w.conf != nil:
		default:
			if _, err := os.Stat(w.place(name).dir); err != nil {
				return nil, fmt.Errorf("network %s: %w", name, err)
			}
		}
	}
	return names, nil
}

// networks returns the names of the directories in the data directory.
func (w *word) networks() (names []string, err error) {
	if w.conf != nil {
		return []string{w.conf.Name}, nil
	}
	entries, err := os.ReadDir(w.dataDir)
	for _, e := range entries {
		if e.IsDir() && plainName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// place returns where a network is, for a word that changes it.
func (w *word) place(name string) place {
	if w.conf != nil {
		return place{dir: w.conf.dir(), network: w.conf.Name, shared: w.conf.shared, tool: true}
	}
	return place{dir: filepath.Join(w.dataDir, name), network: name, tool: true}
}

// check reads a network as a whole.
func (w *word) check(name string) error {
	v, err := w.place(name).look(true)
	switch {
	case err != nil:
		return err
	case v.shared != "":
		fmt.Fprintf(w.stdout, "%s: not checked: shared, in %s; name it by -conf FILE\n", name, v.shared)
	default:
		fmt.Fprintf(w.stdout, "%s: ok, %s\n", name, v)
	}
	return nil
}

// String says which plugin has the network.
func (v view) String() string {
	files := fmt.Sprintf("%d attachments in %d files of host-local", len(v.files.Holdings), len(v.files.files))
	switch {
	case !v.ours && v.exported:
		return "written back: " + files
	case !v.ours:
		return "not taken over: " + files
	case len(v.files.files) > 0:
		return fmt.Sprintf("%d attachments, and %s to be taken over by the next call", len(v.state.Holdings), files)
	}
	return fmt.Sprintf("%d attachments", len(v.state.Holdings))
}

// export writes a network back: the files, then the marker, with which no call of this plugin
// changes anything, and when that is on the disk the state goes, and the guard last, all of it
// under the network's lock. If it is interrupted in between, repeating it continues.
func (w *word) export(name string) error {
	p := w.place(name)
	if p.shared != nil {
		return w.leave(p)
	}
	if err := p.mustBeLocal(); err != nil {
		return err
	}
	if w.dryRun && w.hasNetwork(name) {
		v, err := p.look(false)
		if err == nil {
			err = checkLegacy(p.dir, v.state)
		}
		if err == nil {
			fmt.Fprintf(w.stdout, "%s: would write back %d attachments\n", name, len(v.state.Holdings))
		}
		return err
	}
	p.export = true
	s, err := (*state)(nil), errNothing
	if !w.dryRun {
		s, err = p.open()
	}
	if errors.Is(err, errNothing) { // written back, or never taken over
		fmt.Fprintf(w.stdout, "%s: this plugin does not have it\n", name)
		return nil
	}
	if err == nil {
		err = errors.Join(s.writeBack(w), s.close())
	}
	return err
}

// leave ends the sharing of a network on this node.
func (w *word) leave(p place) error {
	if w.dryRun {
		v, err := p.look(false)
		if err == nil {
			fmt.Fprintf(w.stdout, "%s: this node holds %d attachments in the store, and could end the sharing with none\n", p.network, p.heldHere(v.state))
		}
		return err
	}
	p.export = true
	s, err := p.open()
	if errors.Is(err, errNothing) || errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w.stdout, "%s: this node does not share it\n", p.network)
		return nil
	}
	if err != nil {
		return err
	}
	if err = errors.Join(s.leave(), s.close()); err == nil {
		fmt.Fprintf(w.stdout, "%s: this node shares it no longer\n", p.network)
	}
	return err
}

// writeBack writes the files of host-local and removes the state. Until the marker stops this
// plugin, nothing has changed: a write that fails is taken back, and after a kill the next call
// finds files of attachments that it holds.
func (s *state) writeBack(w *word) error {
	all, err := s.engine.Export(s.ctx)
	if err != nil {
		return err
	}
	undo, err := writeLegacy(s.dir, all)
	if err == nil {
		err = syncAll(s.dir) // the files are to be there if the machine dies when the state is gone
	}
	written := false
	if err == nil {
		written, err = s.there(exportedName)
	}
	if err == nil && !written {
		marker := "This network was given back to host-local. \"cni-ipam import\" takes it over again.\n"
		err = writeNew(s.file(exportedName), marker+w.program)
	}
	if err != nil {
		undo()
		return err
	}
	s.forgetTaken()
	for _, name := range []string{bootName, spareName, stateName} {
		if err := s.remove(name); err != nil {
			return err
		}
	}
	if err := s.unguard(); err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "%s: wrote back %d attachments\n", s.network, len(all.Holdings))
	return syncAll(s.dir)
}

// takeOver imports what host-local left, also after an export.
func (w *word) takeOver(name string) error {
	p := w.place(name)
	if err := p.mustBeLocal(); err != nil {
		return err
	}
	if w.dryRun {
		v, err := p.look(false)
		if err == nil {
			fmt.Fprintf(w.stdout, "%s: would take over %d attachments from %d files, and free %d addresses without a holder\n",
				name, len(v.files.Holdings), len(v.files.files), len(v.files.empty))
		}
		return err
	}
	p.adopt = true
	s, err := p.open()
	if errors.Is(err, errNothing) {
		fmt.Fprintf(w.stdout, "%s: there is nothing to take over\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	all, err := s.engine.Export(s.ctx)
	if err == nil && w.finish {
		s.forgetTaken()
	}
	if err = errors.Join(err, s.close()); err == nil {
		fmt.Fprintf(w.stdout, "%s: holds %d attachments\n", name, len(all.Holdings))
	}
	return err
}
