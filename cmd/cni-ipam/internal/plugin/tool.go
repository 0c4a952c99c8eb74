package plugin

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/cmd/internal/version"
)

const usage = `%[1]s is a CNI plugin: a runtime calls it with CNI_COMMAND in the environment.
A person calls it with one of these commands. show, check and -n change nothing.

  show   [-o json] [NETWORK...]
                   what each network holds, whichever plugin has it
  check  [NETWORK...]
                   read everything and compare it with itself
  gc     [-n] [-max SHARE] -keep FILE NETWORK...
                   release the attachments of containers that are not in FILE, one id a line and "# end" as the last
                   one; "-" is standard input. Attachments that were added later than a minute before FILE was made
                   stay. Nothing is released if that is more than SHARE of what is held, a number or by default 5%%
                   or 5, whichever is more, or if no container in FILE holds an address
  gc     [-n] -drained NETWORK...
                   release everything: no container lives on the node
  gc     [-n] NETWORK ADDRESS|CONTAINER...
                   release the attachments that hold an address, or those of a container
`

const localUsage = `  install [-every TIME] DIR
                   put this program into DIR under the name host-local, and keep what was there as host-local.original.
                   It replaces nothing if a network is in a form that it cannot read. -every looks again, until it is
                   stopped
  uninstall [-n] [-every TIME] DIR [NETWORK...]
                   put host-local.original in its place again, and write all networks back in its form: everything, or
                   nothing if a network or the program cannot be. With NETWORK, only these, where the original is in place
  version

Networks are in %[2]s and in the directories that calls have recorded there. -data-dir DIR, which may be repeated, names others
instead. -root DIR is where the file system of the node is, for a command in a container; DIR of install and uninstall is below it.
`

const sharedUsage = `  version

show, check and gc need -conf FILE, the configuration of the network, of a plugin or a list; NETWORK may be left out. gc and
show are about the attachments of this node, or of -node NAME. An id in FILE of gc may also be a key, as key/KEY: keys are
released only if FILE has one, or by name. cni-ipam installs and removes this program together with itself.
`

// word is one call by a person.
type word struct {
	name     string
	dataDirs []string // that were named
	root     string
	dryRun   bool
	json     bool
	keep     string
	most     string
	drained  bool
	conf     *netConf // of a shared network
	node     string   // of a shared network, if not this one
	every    time.Duration

	stdin  io.Reader
	stdout io.Writer
}

// words are what a person may call.
var words = map[string]func(*word, []string) error{
	"show": (*word).show, "check": (*word).check, "gc": (*word).gc, "version": (*word).version,
	"install": repeated((*word).install), "uninstall": repeated((*word).uninstall),
}

// tool carries out a word and returns the exit status: 2 if it is none, 1 if it fails.
func tool(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	w := &word{name: args[0], stdin: stdin}
	do := words[w.name]
	flags := w.flags(stderr)
	if do == nil || openRemote != nil && (w.name == "install" || w.name == "uninstall") {
		flags.Usage()
		return 2
	}
	names, err := parse(flags, args[1:])
	if err != nil {
		return 2
	}
	if w.conf != nil && w.node != "" {
		w.conf.shared.node = w.node
	}
	if openRemote != nil && w.conf == nil && w.name != "version" {
		fmt.Fprintf(stderr, "%s: %s needs -conf FILE\n", program(), w.name)
		return 1
	}
	out := &said{Writer: stdout}
	w.stdout = out
	if err := errors.Join(do(w, names), out.err); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program(), err)
		return 1
	}
	return 0
}

// flags returns the flags that the word takes.
func (w *word) flags(stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(w.name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		if openRemote != nil {
			fmt.Fprintf(stderr, usage+sharedUsage, program())
		} else {
			fmt.Fprintf(stderr, usage+localUsage, program(), defaultDataDir)
		}
	}
	takes := func(words ...string) bool { return slices.Contains(words, w.name) }
	if openRemote == nil {
		flags.Func("data-dir", "", func(dir string) error { w.dataDirs = append(w.dataDirs, dir); return nil })
		flags.StringVar(&w.root, "root", "", "")
	} else {
		flags.Func("conf", "", func(path string) (err error) { w.conf, err = readConfFile(path); return err })
		flags.StringVar(&w.node, "node", "", "")
	}
	if takes("gc", "uninstall") {
		flags.BoolVar(&w.dryRun, "n", false, "")
	}
	if takes("install", "uninstall") {
		flags.DurationVar(&w.every, "every", 0, "")
	}
	if takes("gc") {
		flags.StringVar(&w.keep, "keep", "", "")
		flags.StringVar(&w.most, "max", "", "")
		flags.BoolVar(&w.drained, "drained", false, "")
	}
	if takes("show") {
		flags.Func("o", "", func(form string) error {
			if w.json = form == "json"; !w.json {
				return errors.New("the only form is json")
			}
			return nil
		})
	}
	return flags
}

// program is the name of this command.
func program() string {
	if openRemote != nil {
		return sharedName
	}
	return "cni-ipam"
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
	_, err := fmt.Fprintf(w.stdout, "%s %s %s\n", about(), program, goVersion)
	return err
}

// each does something for each of the networks that are named, or for all. It looks at all
// names before it touches the first network.
func (w *word) each(names []string, do func(place) error) error {
	places, err := w.places(names)
	if err != nil {
		return err
	}
	for _, p := range places {
		if e := do(p); e != nil {
			err = errors.Join(err, fmt.Errorf("network %s: %w", p.network, e))
		}
	}
	return err
}

// places returns where the networks are that are named, or all. Each must be there: a word that is
// mistyped makes nothing.
func (w *word) places(names []string) (all []place, err error) {
	for _, name := range names {
		if !plainName(name) {
			return nil, fmt.Errorf("%q is not the name of a network", name)
		}
	}
	if w.conf != nil {
		if len(names) > 0 && (len(names) > 1 || names[0] != w.conf.Name) {
			return nil, fmt.Errorf("-conf names the network %s, not %q", w.conf.Name, names)
		}
		return []place{{network: w.conf.Name, shared: w.conf.shared, tool: true}}, nil
	}
	dirs, err := w.dirs()
	if err != nil {
		return nil, err
	}
	boot, _ := readLine(defaultBootID)
	missing := slices.Clone(names)
	for _, dir := range dirs {
		there, err := networks(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range there {
			if len(names) == 0 || slices.Contains(names, name) {
				all = append(all, place{dir: filepath.Join(dir, name), network: name, boot: boot, tool: true})
				missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
			}
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("network %s: %w in %q", missing[0], os.ErrNotExist, dirs)
	}
	return all, nil
}

// check reads networks as a whole.
func (w *word) check(names []string) error {
	return w.each(names, func(p place) error {
		v, err := p.look(true)
		if err == nil {
			fmt.Fprintf(w.stdout, "%s: ok, %s\n", p.network, v)
		}
		return err
	})
}

// String names the plugin that has the network.
func (v view) String() string {
	files := fmt.Sprintf("%d attachments in %d files of host-local", len(v.files.Holdings), len(v.files.files))
	switch {
	case !v.ours:
		return "not taken over: " + files
	case len(v.files.files) > 0:
		return fmt.Sprintf("%d attachments, and %s to be taken over by the next call", len(v.state.Holdings), files)
	}
	return fmt.Sprintf("%d attachments", len(v.state.Holdings))
}
