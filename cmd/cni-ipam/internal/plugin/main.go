// Package plugin is the CNI plugins cni-ipam and cni-ipam-etcd, and the commands that a person calls them with.
package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// mark is in each program of this plugin, and in no other one.
const mark = "CNI IPAM plugin cni-ipam of ipalloc"

func about() string {
	if openRemote != nil {
		return mark + ", for networks that nodes share: " + sharedName
	}
	return mark + ", in place of host-local"
}

// Main carries out the call that the environment and the arguments describe, and ends the
// process. With open, it is the plugin for networks that nodes share, without it that for local ones.
func Main(open func(context.Context, Remote) (*Session, error)) {
	openRemote = open
	if os.Getenv("CNI_COMMAND") == "" && len(os.Args) > 1 {
		os.Exit(tool(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	out, err := run(os.Getenv, os.Stdin, os.Stderr)
	if err == nil && len(out) > 0 {
		if _, e := os.Stdout.Write(out); e != nil {
			err = types.NewError(types.ErrIOFailure, e.Error(), "")
		}
	}
	if err != nil {
		printError(err)
		os.Exit(1)
	}
}

// printError writes an error as the specification has it, with the version, which skel leaves out.
func printError(err *types.Error) {
	out, e := json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{version.Current(), err}, "", "    ")
	if e == nil {
		_, e = os.Stdout.Write(out)
	}
	if e != nil {
		logf("%s (the error could not be written: %v)", err, e)
	}
}

// logf writes a line to stderr, which is where a plugin's log goes.
func logf(format string, a ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, a...), "\n")
	fmt.Fprintln(os.Stderr, program()+": "+printable(strings.ReplaceAll(text, "\n", "; ")))
}
