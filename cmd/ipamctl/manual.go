package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// printLine writes v as JSON on one line.
func (a *app) printLine(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", text)
	return err
}

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Args: cobra.ExactArgs(1),
		Short: "Write a manual page for each command into a directory",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			date := time.Unix(0, 0).UTC() // the same pages from the same program
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Title: "IPAMCTL", Section: "1", Source: "ipalloc", Manual: "ipamctl", Date: &date}, args[0])
		},
	}
}
