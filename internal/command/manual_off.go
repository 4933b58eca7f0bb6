//go:build !manual

package command

import "github.com/spf13/cobra"

// manualCommands returns no command: see manual.go.
func manualCommands(streams) []*cobra.Command { return nil }
