package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/bench/results"
)

// Programs are the programs that a campaign can start.
type Programs struct {
	// Path is the program of each library: for torch the Python interpreter, for nexar the
	// nexar command.
	Path        map[string]string
	Rank        string            // the benchmark program of nexar
	Root        map[string]string // the folder of each MPI
	TorchScript string
	Session     string // a library that keeps the ranks of a launcher in its session; "" without MPI

	Missing  map[string]string // the reason, and how to install it, by library
	Software map[string]string // versions
}

// buildTimeout limits the build of one program. That of the Rust crate takes minutes.
const buildTimeout = 15 * time.Minute

// Build builds the programs of the settings with the libraries that peers/install has installed, and calls say before each.
// Bench is the folder of this module; programs are built in its subfolder .build. It returns an error only if nexar cannot be
// built or ctx ends; other failures are in Programs.Missing.
func Build(ctx context.Context, bench string, settings []Setting, say func(step string)) (*Programs, error) {
	bench, err := filepath.Abs(bench)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(bench, ".build")
	b := &builder{dir: bench, out: out, peers: filepath.Join(out, "peers"), programs: &Programs{
		Path: make(map[string]string), Root: make(map[string]string), Missing: make(map[string]string), Software: make(map[string]string),
	}}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	say("building nexar for Go")
	if err := b.nexar(ctx); err != nil {
		return nil, fmt.Errorf("nexar for Go: %w", err)
	}
	for _, library := range []struct {
		name  string
		build func(context.Context) error
	}{
		{progIntel, func(ctx context.Context) error { return b.mpi(ctx, progIntel) }},
		{progOpenMPI, func(ctx context.Context) error { return b.mpi(ctx, progOpenMPI) }},
		{progMPICH, func(ctx context.Context) error { return b.mpi(ctx, progMPICH) }},
		{progGloo, b.gloo}, {progTorch, b.torch}, {progRust, b.rust},
	} {
		if !slices.ContainsFunc(settings, func(s Setting) bool {
			return slices.ContainsFunc(s.Systems, func(s System) bool { return s.Program == library.name })
		}) {
			continue
		}
		say("building " + library.name)
		if err := library.build(ctx); err != nil {
			delete(b.programs.Path, library.name)
			b.programs.Missing[library.name] = strings.ReplaceAll(err.Error(), b.dir, "bench") + `; run "make bench-install"`
		}
	}
	return b.programs, ctx.Err()
}

// A builder builds the programs and records their paths and versions.
type builder struct {
	dir, out, peers string
	programs        *Programs
}

// do runs a command and returns its output. An error contains the last lines of the output.
func (b *builder) do(ctx context.Context, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = grace
	stop := endAsSession(cmd)
	out, err := cmd.CombinedOutput()
	stop()
	text := strings.TrimSpace(string(out))
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("command %s not found", args[0])
	}
	if err != nil {
		lines := strings.Split(text, "\n")
		return "", fmt.Errorf("%s: %w: %s", args[0], err, strings.Join(lines[max(0, len(lines)-5):], " | "))
	}
	return text, nil
}

// version records the first line of the version output of a command.
func (b *builder) version(ctx context.Context, name string, args ...string) {
	if text, err := b.do(ctx, nil, args...); err == nil && text != "" {
		first, _, _ := strings.Cut(text, "\n")
		b.programs.Software[name] = first
	}
}

func (b *builder) nexar(ctx context.Context) error {
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	command, rank := filepath.Join(b.out, "nexar"+exe), filepath.Join(b.out, "rank-nexar"+exe)
	static := []string{"CGO_ENABLED=0"}
	if _, err := b.do(ctx, static, "go", "-C", filepath.Dir(b.dir), "build", "-o", command, "./cmd/nexar"); err != nil {
		return err
	}
	if _, err := b.do(ctx, static, "go", "build", "-o", rank, "./cmd/rank"); err != nil {
		return err
	}
	b.programs.Path[progNexar], b.programs.Rank = command, rank
	b.version(ctx, "Go", "go", "env", "GOVERSION")
	b.version(ctx, results.Commit, "git", "describe", "--always", "--dirty")
	return nil
}

// mpi builds the program of an MPI.
func (b *builder) mpi(ctx context.Context, name string) error {
	rank, root := filepath.Join(b.out, "rank-"+name), filepath.Join(b.peers, name)
	env := []string{"I_MPI_ROOT=" + root, "I_MPI_CC=cc"}
	if _, err := b.do(ctx, env, filepath.Join(root, "bin", "mpicc"), "-O3", "-o", rank, "peers/mpi/rank.c"); err != nil {
		return err
	}
	session := filepath.Join(b.out, "session.so")
	if _, err := b.do(ctx, nil, "cc", "-O2", "-shared", "-fPIC", "-o", session, "peers/session.c"); err != nil {
		return err
	}
	b.programs.Path[name], b.programs.Root[name], b.programs.Session = rank, root, session
	return nil // The program prints the version.
}

func (b *builder) gloo(ctx context.Context) error {
	rank, root := filepath.Join(b.out, "rank-gloo"), filepath.Join(b.peers, "gloo", "usr")
	lib := filepath.Join(root, "lib")
	own, err := filepath.Glob(filepath.Join(lib, "*-linux-*")) // with hiredis, which Gloo needs
	if err != nil {
		return err
	}
	if _, err := b.do(ctx, nil, "c++", "-std=c++17", "-O3", "-I", filepath.Join(root, "include"), "-o", rank, "peers/gloo/rank.cc",
		"-L", lib, "-Wl,--disable-new-dtags,-rpath,"+strings.Join(append(own, lib), ":"), "-lgloo", "-lpthread"); err != nil {
		return err
	}
	b.programs.Path[progGloo] = rank
	b.version(ctx, "Gloo", "cat", filepath.Join(b.peers, "gloo", "version"))
	return nil
}

func (b *builder) torch(ctx context.Context) error {
	const printVersion = "import torch, torch.distributed as d; assert d.is_gloo_available(), 'torch is built without Gloo'; print(torch.__version__)"
	python := filepath.Join(b.peers, progTorch, "bin", "python")
	version, err := b.do(ctx, nil, python, "-c", printVersion)
	if err != nil {
		return err
	}
	b.programs.Path[progTorch] = python
	b.programs.TorchScript = filepath.Join(b.dir, "peers", "torch", "rank.py")
	b.programs.Software["torch"] = version
	return nil
}

func (b *builder) rust(ctx context.Context) error {
	target := filepath.Join(b.peers, "cargo")
	if _, err := b.do(ctx, nil, "cargo", "build", "--quiet", "--release", "--offline", "--manifest-path", "peers/rust/Cargo.toml", "--target-dir", target); err != nil {
		return err
	}
	b.programs.Path[progRust] = filepath.Join(target, "release", "rank-rust")
	b.version(ctx, "Rust", "rustc", "--version")
	return nil
}
