package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is one run of the program: its streams, and the flags that all commands have.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time

	store   string
	space   string
	format  string
	quiet   bool
	dryRun  bool
	yes     bool
	timeout time.Duration
}

// run is the whole program. It returns the exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && err != nil {
		err = fail(exitAborted, "stopped")
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(a.stderr, "ipamctl: %v\n", err)
	}
	return statusOf(err)
}

// root returns the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ipamctl",
		Short: "Show and change the pools, blocks and addresses in a store of ipalloc",
		Long: "ipamctl shows and changes what ipalloc's package ipset keeps in a store.\n\n" +
			"The store is named by --store or the variable IPAMCTL_STORE: bolt:///path/of/file,\n" +
			"etcd://host:port,host:port/prefix, sqlite:///path/of/file, postgres://user@host:port/database or kube://namespace/name\n" +
			"(the cluster of the kubeconfig). A command that only reads, and every --dry-run, works on a\n" +
			"bbolt file while another process has it: it reads a copy of the file that it has verified.\n\n" + exitText,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fail(exitUsage, "%v", err) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "the `STORE`, such as bolt:///path/of/file (default $IPAMCTL_STORE)")
	flags.StringVar(&a.space, "space", "", "the space `NAME` of the store, for every command (default: that without a name)")
	flags.StringVarP(&a.format, "output", "o", "table", "the `FORMAT`: table, json, yaml, name or csv")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "write nothing to standard error but errors")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up after this time; 0 does not")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return checkFormat(a.format) }
	root.AddCommand(a.poolCommand(), a.addressCommand(), a.handleCommand(), a.hostCommand(), a.blockCommand(),
		a.assignCommand(), a.releaseCommand(), a.reserveCommand(), a.configCommand(), a.spaceCommand(),
		a.importCommand(), a.exportCommand(), a.diffCommand(), a.backupCommand(), a.restoreCommand(), a.copyCommand(),
		a.watchCommand(), a.topCommand(), a.snapshotCommand(), a.manCommand(),
		a.mapCommand(), a.checkCommand(), a.repairCommand(), a.gcCommand(), a.sweepCommand())
	for _, c := range allCommands(root) {
		wrapArgs(c)
	}
	return root
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
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored reports whether standard output takes colour.
func (a *app) colored() bool {
	return isTerminal(a.stdout) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// confirm asks for a name before something is destroyed. Without a terminal it refuses unless --yes.
func (a *app) confirm(what, name string) error {
	if a.yes || a.dryRun {
		return nil
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return fail(exitRefused, "%s: confirm with --yes, or look first with --dry-run", what)
	}
	fmt.Fprintf(a.stderr, "%s. Type %q to confirm: ", what, name)
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(line) != name {
		return fail(exitAborted, "not confirmed; nothing was changed")
	}
	return nil
}
