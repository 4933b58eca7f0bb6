// Package top shows the state of a cluster in a terminal, as the page does in a browser: both draw the views of package model.
package top

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"

	"github.com/nexar-go/nexar/internal/page/model"
	"github.com/nexar-go/nexar/internal/page/poll"
	"github.com/nexar-go/nexar/trace"
)

// Run draws the state of the cluster that ask returns on the terminal out, and takes keys from in, until the user quits or ctx ends.
func Run(ctx context.Context, in io.Reader, out io.Writer, ask func(context.Context) (trace.Cluster, error)) error {
	p := tea.NewProgram(&screen{width: 80, height: 24, folded: make(map[string]bool)}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	poller := poll.Poller{Ask: ask, Show: func(v model.View) { p.Send(v) }}
	poller.Enter()
	_, err := p.Run()
	poller.Leave()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
