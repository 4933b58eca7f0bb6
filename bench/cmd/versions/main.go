// Command versions compares the speed of the working tree with that of an older revision. "make
// bench-base BASE=revision" calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar/bench/versions"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "versions: %v\n", err)
		os.Exit(1)
	}
}

// limit is the ratio below which a row counts as slower.
const limit = 0.95

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	set := flag.NewFlagSet("versions", flag.ContinueOnError)
	base := set.String("base", "", "`revision` to compare with, such as v0.1.0 or HEAD~20")
	repo := set.String("repo", "..", "`folder` of the repository")
	settings := set.String("settings", "shm:2,shm:4,shm:8,tcp:2,tcp:4", "transports and numbers of ranks, separated by `commas`")
	ops := set.String("ops", "all_reduce,barrier,broadcast,all_to_all,send_recv,send_stream", "`operations`, separated by commas")
	sizes := set.String("sizes", "8,1KiB,64KiB,1MiB,64MiB", "`sizes` of vectors, separated by commas")
	rounds := set.Int("rounds", 10, "`number` of rounds; both versions measure each row once in a round")
	budget := set.Duration("budget", 200*time.Millisecond, "`time` for one operation at one size in one round, which has at least three runs")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *base == "" || set.NArg() > 0 || *rounds < 1 {
		return fmt.Errorf("want -base REVISION, -rounds of at least 1 and no arguments, got %q", args)
	}
	plan := versions.Plan{Ops: strings.Split(*ops, ","), Rounds: *rounds, Budget: *budget}
	for _, text := range strings.Split(*settings, ",") {
		s, err := versions.ParseSetting(text)
		if err != nil {
			return err
		}
		plan.Settings = append(plan.Settings, s)
	}
	for _, text := range strings.Split(*sizes, ",") {
		n, err := humanize.ParseBytes(text)
		if err != nil {
			return fmt.Errorf("-sizes: %w", err)
		}
		plan.Sizes = append(plan.Sizes, int64(n))
	}
	dir, err := os.MkdirTemp("", "nexar-versions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if plan.Old, plan.New, err = build(ctx, *repo, *base, dir); err != nil {
		return err
	}
	rows, err := versions.Run(ctx, plan, func(round int) {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, *rounds)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The working tree compared with %s. Where the ratio is above 1, the working tree is faster.\n\n", *base)
	return versions.Print(out, rows, limit)
}

// build builds the commands of the base revision and of the working tree.
func build(ctx context.Context, repo, base, dir string) (old, current string, err error) {
	tree := filepath.Join(dir, "base")
	old, current = filepath.Join(dir, "nexar-old"), filepath.Join(dir, "nexar-new")
	if err := command(ctx, repo, "git", "worktree", "add", "--quiet", "--detach", tree, base); err != nil {
		return "", "", err
	}
	err = command(ctx, tree, "go", "build", "-buildvcs=false", "-o", old, "./cmd/nexar")
	if removed := command(context.WithoutCancel(ctx), repo, "git", "worktree", "remove", "--force", tree); err == nil {
		err = removed
	}
	if err != nil {
		return "", "", err
	}
	return old, current, command(ctx, repo, "go", "build", "-buildvcs=false", "-o", current, "./cmd/nexar")
}

// command runs a program in a folder. Its output is part of the error.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(out)))
	}
	return nil
}
