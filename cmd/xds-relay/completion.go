package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// addCompletion adds the command that prints a shell's completion script. Flags complete
// file names only where they take a file.
func addCompletion(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Short = "Print the completion script of a shell"
		cmd.Example = `  xds-relay completion bash > /etc/bash_completion.d/xds-relay
  xds-relay completion zsh > "${fpath[1]}/_xds-relay"
  xds-relay completion fish > ~/.config/fish/completions/xds-relay.fish
  xds-relay completion powershell | Out-String | Invoke-Expression`
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("unknown shell %q; use bash, zsh, fish or powershell", args[0])}
			}
			return nil
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
}

// completeFiles has shells complete a flag with the names of files of some kinds, given
// by the ends of their names.
func completeFiles(cmd *cobra.Command, flag string, ends ...string) {
	if err := cmd.MarkFlagFilename(flag, ends...); err != nil {
		panic(err) // there is no such flag
	}
}

// completeWords has shells complete a flag with one of some words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}
