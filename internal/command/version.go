package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of nexar, the revision if it is known, and the version of Go and
the platform that the binary was built for.`,
		Example: `  nexar version`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, version(debug.ReadBuildInfo()))
			return err
		},
	}
}

// version describes the binary.
func version(info *debug.BuildInfo, ok bool) string {
	number, revision, modified := "(unknown version)", "", ""
	if ok {
		if info.Main.Version != "" {
			number = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = ", revision " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = " and changes"
			}
		}
	}
	return fmt.Sprintf("nexar %s%s%s, %s %s/%s", number, revision, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
