package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nexar-go/nexar/bench/results"
)

// Programs are the programs that a campaign can start.
type Programs struct {
	// Path is the program of each library: for torch the Python interpreter, for nexar the
	// nexar command.
	Path        map[string]string
	Rank        string // the benchmark program of nexar
	Mpirun      string
	TorchScript string

	Missing  map[string]string // the reason, and how to install it, by library
	Software map[string]string // versions
}

// Places are the folder of the module and the Python interpreter.
type Places struct {
	Bench  string // the folder of this module; programs are built in its subfolder .build
	Python string // an interpreter with torch
}

// buildTimeout limits the build of one program. That of the Rust crate takes minutes.
const buildTimeout = 15 * time.Minute

// Build builds the programs of all installed libraries, and calls say before each. It installs
// nothing. It returns an error only if nexar cannot be built or ctx ends; other failures are in
// Programs.Missing.
func Build(ctx context.Context, places Places, say func(step string)) (*Programs, error) {
	bench, err := filepath.Abs(places.Bench)
	if err != nil {
		return nil, err
	}
	b := &builder{dir: bench, out: filepath.Join(bench, ".build"), python: places.Python, programs: &Programs{
		Path: make(map[string]string), Missing: make(map[string]string), Software: make(map[string]string),
	}}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	say("building nexar for Go")
	if err := b.nexar(ctx); err != nil {
		return nil, fmt.Errorf("nexar for Go: %w", err)
	}
	for _, library := range []struct {
		name, how string
		build     func(context.Context) error
	}{
		{progOpenMPI, "apt-get install gcc openmpi-bin libopenmpi-dev", b.openMPI},
		{progGloo, "apt-get install g++ libgloo-dev", b.gloo},
		{progTorch, "python3 -m venv DIR && DIR/bin/pip install torch numpy, and -python DIR/bin/python", b.torch},
		{progRust, "cargo 1.89 or later, which fetches the crate", b.rust},
	} {
		say("building " + library.name)
		if err := library.build(ctx); err != nil {
			delete(b.programs.Path, library.name)
			b.programs.Missing[library.name] = fmt.Sprintf("%v; to install it: %s", err, library.how)
		}
	}
	return b.programs, ctx.Err()
}

// A builder builds the programs and records their paths and versions.
type builder struct {
	dir, out, python string
	programs         *Programs
}

// do runs a command and returns its output. An error contains the last lines of the output.
func (b *builder) do(ctx context.Context, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = grace
	stop := endAsGroup(cmd)
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
	b.version(ctx, "go", "go", "version")
	b.version(ctx, results.Commit, "git", "describe", "--always", "--dirty")
	return nil
}

func (b *builder) openMPI(ctx context.Context) error {
	rank := filepath.Join(b.out, "rank-openmpi")
	if _, err := b.do(ctx, nil, "mpicc", "-O3", "-o", rank, "peers/openmpi/rank.c"); err != nil {
		return err
	}
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		return errors.New("command mpirun not found")
	}
	b.programs.Path[progOpenMPI], b.programs.Mpirun = rank, mpirun
	b.version(ctx, "Open MPI", mpirun, "--version")
	b.version(ctx, "C compiler", "mpicc", "--version")
	return nil
}

func (b *builder) gloo(ctx context.Context) error {
	rank := filepath.Join(b.out, "rank-gloo")
	if _, err := b.do(ctx, nil, "c++", "-std=c++17", "-O3", "-o", rank, "peers/gloo/rank.cc", "-lgloo", "-lpthread"); err != nil {
		return err
	}
	b.programs.Path[progGloo] = rank
	b.programs.Software["Gloo"] = "unknown"
	b.version(ctx, "Gloo", "dpkg-query", "--show", "--showformat", "${Version} (Debian)", "libgloo-dev")
	return nil
}

func (b *builder) torch(ctx context.Context) error {
	const printVersion = "import torch, torch.distributed as d; assert d.is_gloo_available(), 'torch is built without Gloo'; print(torch.__version__)"
	version, err := b.do(ctx, nil, b.python, "-c", printVersion)
	if err != nil {
		return err
	}
	python, err := exec.LookPath(b.python)
	if err != nil {
		return err
	}
	if python, err = filepath.Abs(python); err != nil {
		return err
	}
	b.programs.Path[progTorch] = python
	b.programs.TorchScript = filepath.Join(b.dir, "peers", "torch", "rank.py")
	b.programs.Software["torch"] = version
	return nil
}

func (b *builder) rust(ctx context.Context) error {
	target := filepath.Join(b.out, "cargo")
	if _, err := b.do(ctx, nil, "cargo", "build", "--quiet", "--release", "--manifest-path", "peers/rust/Cargo.toml", "--target-dir", target); err != nil {
		return err
	}
	b.programs.Path[progRust] = filepath.Join(target, "release", "rank-rust")
	b.programs.Software["nexar (Rust)"] = "0.1.2"
	b.version(ctx, "Rust", "rustc", "--version")
	return nil
}
