package ranks

import (
	"io"
	"os"

	"github.com/fatih/color"
	"golang.org/x/term"
)

// paintFor returns a function that makes the prefix of process i for lines on w. The prefix
// is colored if w is a terminal, unless NO_COLOR is set (https://no-color.org).
func paintFor(w io.Writer) func(i int, label string) string {
	f := fileOf(w)
	colored := f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return func(i int, label string) string {
		prefix := "[" + label + "]"
		if colored {
			prefix = paint(i, prefix)
		}
		return prefix + " "
	}
}

// paint colors text in the color of process i.
func paint(i int, text string) string {
	colors := [...]color.Attribute{
		color.FgCyan, color.FgYellow, color.FgGreen, color.FgMagenta, color.FgBlue, color.FgRed,
		color.FgHiCyan, color.FgHiYellow, color.FgHiGreen, color.FgHiMagenta, color.FgHiBlue, color.FgHiRed,
	}
	c := color.New(colors[i%len(colors)])
	c.EnableColor()
	return c.Sprint(text)
}
