package main

import "github.com/spf13/cobra"

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
