package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cmd/internal/version"
)

// app is one run of the program: its streams, and the flags that all commands have.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time

	store   string
	space   string // that --space names, empty for the one without a name
	format  string
	noHead  bool
	sort    string
	rows    int // the most of a list, 0 for all
	quiet   bool
	dryRun  bool
	yes     bool
	timeout time.Duration

	passwordFile string
	spaceGiven   bool // --space is given
	copying      bool // the store is opened to be copied into
	adopting     bool // the store is opened to be taken over
	following    bool // the store is opened to be watched
	labels       hostLabels

	wrote  atomic.Bool // a commit was made
	copies []string    // of files, each with the name of the file
}

// output is a stream that keeps the first error of writing, which not every print returns.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// run is the whole program. It returns the exit status.
func (a *app) run(ctx context.Context, args []string) int {
	out := &output{Writer: a.stdout}
	a.stdout = out
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	err = a.verdict(ctx, err, out.err)
	if err != nil && err.Error() != "" {
		names := strings.NewReplacer(append(a.copies, "boltstore.Salvage", "ipamctl store salvage", " or wait for it with Options.LockWait", " or only look, which needs no lock")...)
		fmt.Fprintf(a.stderr, "ipamctl: %s\n", names.Replace(err.Error()))
	}
	return statusOf(err)
}

// verdict returns how the program ends after a command that ended with err, and whose output met an error or nil.
func (a *app) verdict(ctx context.Context, err, writing error) error {
	switch {
	case err == nil || errors.Is(err, errFindings):
		if writing != nil {
			return fail(exitUnavailable, "standard output: %v", writing)
		}
	case errors.Is(err, ipalloc.ErrUnknownOutcome):
		return fail(statusOf(err), "%w; the outcome of this call is unknown: repeat this command", err)
	case ctx.Err() != nil && a.wrote.Load():
		return fail(exitAborted, "stopped; a part is done: repeat this command for the rest")
	case ctx.Err() != nil:
		return fail(exitAborted, "stopped")
	}
	return err
}

// root returns the command tree.
func (a *app) root() *cobra.Command {
	program, _ := version.Of()
	root := &cobra.Command{
		Use:   "ipamctl",
		Short: "Show and change the pools, blocks and addresses in a store of ipalloc",
		Long: "ipamctl shows and changes what ipalloc's package ipset keeps in a store.\n\n" +
			"The store is named by --store or the variable IPAMCTL_STORE: bolt:///path/of/file,\n" +
			"unix:///path/of/socket (the store that a running service serves), etcd://host:port,host:port/prefix, sqlite:///path/of/file, postgres://user@host:port/database or kube://namespace/name\n" +
			"(the cluster of the kubeconfig). An etcd's name may end with ?cacert=FILE&cert=FILE&key=FILE&user=NAME; what is not there is read\n" +
			"from ETCDCTL_CACERT and so on. Passwords are read from a file, ETCDCTL_PASSWORD or PGPASSWORD. A command that only reads, and every --dry-run, works on a\n" +
			"consistent copy of a bbolt file, which it makes beside the process that has it, in the directory for temporary files.\n\n" + exitText,
		Version:       program,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fail(exitUsage, "%v", err) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "the `STORE`, such as bolt:///path/of/file (default $IPAMCTL_STORE)")
	flags.StringVar(&a.passwordFile, "password-file", "", "the first line of this `FILE` is the password for an etcd or a PostgreSQL")
	flags.StringVarP(&a.space, "space", "n", "", "the space `NAME` of the store, for every command; \".\" is the one without a name")
	flags.StringVarP(&a.format, "output", "o", "table", "the `FORMAT`: table, json, yaml, name or csv")
	flags.BoolVar(&a.noHead, "no-headers", false, "print tables and CSV without the names of the columns")
	flags.StringVar(&a.sort, "sort", "", "sort a list by this `COLUMN`: numbers by the largest, names and times by the first")
	flags.IntVar(&a.rows, "limit", 0, "print at most this `NUMBER` of rows of a list; 0 prints all")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "write nothing to standard error but errors")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up after this time; 0 does not")
	_ = root.RegisterFlagCompletionFunc("space", a.completeSpaces)
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if a.spaceGiven = cmd.Flags().Changed("space"); a.space == noName {
			a.space = ""
		}
		return errors.Join(checkFormat(a.format), checkNumbers(cmd.Flags()))
	}
	root.AddCommand(a.poolCommand(), a.addressCommand(), a.hostCommand(), a.blockCommand(), a.prefixCommand(), a.numberCommand(), a.attachmentCommand(), a.keptCommand(), a.limitCommand(), a.showCommand(),
		a.assignCommand(), a.releaseCommand(), a.reserveCommand(), a.configCommand(), a.spaceCommand(),
		a.importCommand(), a.exportCommand(), a.diffCommand(), a.storeCommand(),
		a.watchCommand(), a.manCommand(),
		a.explainCommand(), a.historyCommand(), a.mapCommand(), a.serveCommand(), a.checkCommand(), a.repairCommand(), a.gcCommand(), a.sweepCommand())
	for _, c := range allCommands(root) {
		wrapArgs(c)
		a.completeFlags(c)
	}
	return root
}

// flagValues are the values of flags, by command and flag.
var flagValues = map[string][]string{
	"map by": {"state", "host"}, "map order": {"hilbert", "rows"},
	"pool add order": {"fifo", "lowest", "random"}, "pool set order": {"fifo", "lowest", "random"}, "export format": exportFormats, "import format": importFormats,
	"diff format": importFormats,
}

// completeFlags has a shell complete the values of a command's flags.
func (a *app) completeFlags(c *cobra.Command) {
	_, name, _ := strings.Cut(c.CommandPath(), " ")
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if values := flagValues[name+" "+f.Name]; values != nil {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		} else if f.Name == "pool" {
			_ = c.RegisterFlagCompletionFunc(f.Name, a.completePools)
		} else if f.Name == "host" {
			_ = c.RegisterFlagCompletionFunc(f.Name, a.completeHosts)
		}
	})
}

// checkNumbers refuses numbers and times below zero, of which only a priority may be one.
func checkNumbers(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		kind, text := f.Value.Type(), f.Value.String()
		switch {
		case (kind == "int" || kind == "duration") && text[0] == '-' && f.Name != "priority":
			err = fail(exitUsage, "--%s %s: it cannot be below 0", f.Name, text)
		case f.Name == "interval" && text == "0s":
			err = fail(exitUsage, "--interval: the time between two looks cannot be 0")
		}
	})
	return err
}

// allCommands returns c and everything below it.
func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

// wrapArgs has wrong arguments end with exitUsage, and a group without a command print its help.
func wrapArgs(c *cobra.Command) {
	if c.HasSubCommands() && c.RunE == nil {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			err := fmt.Sprintf("there is no command %q", strings.Join(append(strings.Fields(cmd.CommandPath())[1:], args[0]), " "))
			cmd.SuggestionsMinimumDistance = 2
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				err += "; did you mean " + strings.Join(near, ", ") + "?"
			}
			return fail(exitUsage, "%s", err)
		}
		return
	}
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return fail(exitUsage, "%v; the form is: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// note writes a line to standard error unless --quiet.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.stderr, "ipamctl: "+format+"\n", args...)
	}
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if o, ok := stream.(*output); ok {
		stream = o.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks for a name before something is destroyed. Without a terminal it refuses unless --yes. A signal ends the question.
func (a *app) confirm(ctx context.Context, what, name string) error {
	if a.yes || a.dryRun {
		return nil
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return fail(exitRefused, "%s: confirm with --yes, or look first with --dry-run", what)
	}
	return a.ask(ctx, what, name)
}

// ask asks on the terminal.
func (a *app) ask(ctx context.Context, what, name string) error {
	fmt.Fprintf(a.stderr, "%s. Type %q to confirm: ", what, name)
	type answer struct {
		line string
		err  error
	}
	typed := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(a.stdin).ReadString('\n')
		typed <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return ctx.Err()
	case got := <-typed:
		if got.err != nil && !errors.Is(got.err, io.EOF) {
			return got.err
		}
		if strings.TrimSpace(got.line) != name {
			return fail(exitAborted, "not confirmed; nothing was changed")
		}
		return nil
	}
}
