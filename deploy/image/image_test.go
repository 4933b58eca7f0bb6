//go:build linux

//race:none it runs programs in processes without the race detector

// Package image tests the image of the Dockerfile without a container runtime: in a directory with the files of the image, as
// its user or another one, without any file to write to.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testbuild"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
)

// tree is the root of the repository, which is the context of the build.
const tree = "../.."

// maxBytes bounds the size of the image.
const maxBytes = 30_000_000

// An instruction is one of a Dockerfile.
type instruction struct{ name, args string }

// parse returns the instructions of each stage of a Dockerfile.
func parse(text string) (stages [][]instruction) {
	text = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		name, args, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		if name == "FROM" {
			stages = append(stages, nil)
		}
		if n := len(stages); n > 0 {
			stages[n-1] = append(stages[n-1], instruction{name, strings.TrimSpace(args)})
		}
	}
	return stages
}

// all returns the arguments of the instructions with a name.
func all(stage []instruction, name string) (list []string) {
	for _, i := range stage {
		if i.name == name {
			list = append(list, i.args)
		}
	}
	return list
}

// one returns the arguments of the only instruction with a name.
func one(t *testing.T, stage []instruction, name string) string {
	t.Helper()
	list := all(stage, name)
	if len(list) != 1 {
		t.Fatalf("the stage has %d instructions %s, want 1", len(list), name)
	}
	return list[0]
}

// An image is the last stage of the Dockerfile.
type image struct {
	root       string // a directory with its files
	user       string
	path       string
	entrypoint []string
	command    []string
}

// newImage builds the image of the Dockerfile.
func newImage(t *testing.T) image {
	t.Helper()
	testbuild.Static(t)
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := parse(string(text))
	if len(stages) != 2 {
		t.Fatalf("the Dockerfile has %d stages, want 2", len(stages))
	}
	build, final := stages[0], stages[1]
	if from := one(t, final, "FROM"); from != "scratch" {
		t.Fatalf("the image is made from %s, want scratch: this test knows no other files", from)
	}
	dir := t.TempDir()
	m := image{root: filepath.Join(dir, "root"), user: one(t, final, "USER"), path: strings.TrimPrefix(one(t, final, "ENV"), "PATH=")}
	for name, args := range map[string]*[]string{"ENTRYPOINT": &m.entrypoint, "CMD": &m.command} {
		if err := json.Unmarshal([]byte(one(t, final, name)), args); err != nil {
			t.Fatalf("%s: %v: want the form [\"program\", \"argument\"], as the image has no shell", name, err)
		}
	}
	checkGo(t, build)
	compile(t, build, dir)
	for _, args := range all(final, "COPY") {
		from := tree
		if of, found := strings.CutPrefix(args, "--from=build "); found {
			from, args = dir, of
		}
		source, target, _ := strings.Cut(args, " ")
		target = filepath.Join(m.root, target)
		text, err := os.ReadFile(filepath.Join(from, source))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(target), 0o755)); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o644)
		if from == dir {
			mode = 0o755
		}
		if err := os.WriteFile(target, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// checkGo: the version of Go of the image that builds suffices for go.mod.
func checkGo(t *testing.T, build []instruction) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^go (.*)$`).FindSubmatch(mod)
	got := regexp.MustCompile(`golang:([0-9]+\.[0-9]+\.[0-9]+)`).FindStringSubmatch(one(t, build, "FROM"))
	if want == nil || got == nil || version.Compare("go"+got[1], "go"+string(want[1])) < 0 {
		t.Errorf("the Dockerfile builds with Go %q, go.mod needs %q", got, want)
	}
}

// compile runs the last command of the stage that builds, which writes to /out, and has it write to dir/out. The flags of
// this process take the place of GOFLAGS, so that the compiled packages are reused.
func compile(t *testing.T, build []instruction, dir string) {
	t.Helper()
	commands := all(build, "RUN")
	last := commands[len(commands)-1]
	if !strings.Contains(last, "go build ") {
		t.Fatalf("the last command of the build is %q, want go build", last)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.ReplaceAll(last, "/out/", filepath.Join(dir, "out")+"/"))
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH)
	for env := range strings.FieldsSeq(one(t, build, "ENV")) {
		if !strings.HasPrefix(env, "GOFLAGS=") {
			cmd.Env = append(cmd.Env, env)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// enter enters a root directory $1 as the user $2 to run a command, as a container runtime does for an image with a root that
// cannot be written to, with the PATH $3. It has /proc, devices, the directory $4 as /run/secrets, and a file system of the group 0
// at /data.
const enter = `
set -e
root=$1 user=$2 path=$3 secrets=$4 chroot=$(command -v chroot)
shift 4
mkdir -p "$root/proc" "$root/dev" "$root/run/secrets" "$root/data"
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount -t tmpfs -o mode=755,size=64k tmpfs "$root/dev"
for device in null zero full random urandom; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,bind,ro "$root/dev"
mount --bind "$secrets" "$root/run/secrets"
mount -t tmpfs -o mode=2770,uid=0,gid=0,size=16m tmpfs "$root/data"
mount -o remount,bind,ro "$root"
PATH=$path exec "$chroot" --userspec="$user" --groups= "$root" "$@"
`

// A container runs commands in an image.
type container struct {
	image
	user    string
	secrets string
	env     []string
}

// start starts the entry point of the image with arguments.
func (c container) start(ctx context.Context, t *testing.T, args ...string) (*exec.Cmd, *testlog.Buffer) {
	t.Helper()
	out := new(testlog.Buffer)
	cmd := exec.CommandContext(ctx, "unshare", slices.Concat([]string{"--mount", "sh", "-c", enter, "enter", c.root, c.user, c.path, c.secrets}, c.entrypoint, args)...)
	cmd.Env = append([]string{"HOME=/", "PATH=" + os.Getenv("PATH")}, c.env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// run runs the entry point of the image with arguments and returns its output.
func (c container) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd, out := c.start(t.Context(), t, args...)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("nexar %q: %v\n%s", args, err, out)
	}
	return out.String()
}

// TestImage builds the image and uses it as its user, and as a user of the group 0 that the image does not know: without /tmp,
// /dev/shm and /etc, on a root that cannot be written to.
func TestImage(t *testing.T) {
	require.Root(t)
	err := exec.CommandContext(t.Context(), "unshare", "--mount", "true").Run()
	require.Have(t, "root", err == nil, fmt.Sprintf("unshare --mount: %v", err))
	m := newImage(t)
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(m.user) {
		t.Errorf("the user is %q, want two numbers other than 0, which Kubernetes can check", m.user)
	}
	size := int64(0)
	if err := filepath.WalkDir(m.root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("the image has %d bytes", size)
	if size > maxBytes {
		t.Errorf("the image has %d bytes, want at most %d", size, maxBytes)
	}
	own := container{image: m, user: m.user, secrets: t.TempDir()}
	if out := own.run(t, m.command...); !strings.Contains(out, "nexar seed") {
		t.Errorf("nexar %q prints\n%s\nwant its help", m.command, out)
	}
	if out := own.run(t, "version"); !strings.HasPrefix(out, "nexar ") {
		t.Errorf("nexar version prints %q", out)
	}
	if out := own.run(t, "run", "-n", "2", "--", "nexar", "bench", "--op", "barrier", "--iters", "3"); !strings.Contains(out, "0 wrong elements") {
		t.Errorf("nexar run prints\n%s", out)
	}
	address := testhost.FreePort(t)
	for _, dir := range []string{"/var/lib/nexar", "/data/seed"} { // on the root; on a volume of another group
		seed, out := own.start(t.Context(), t, "seed", "--world", "1", "--listen", address, "--state-dir", dir)
		if err := seed.Wait(); err == nil || !strings.Contains(out.String(), "make "+dir+" a directory that this user can write to; in a container, mount a volume there") {
			t.Errorf("a seed that cannot write to %s ends with %v and prints\n%s", dir, err, out)
		}
	}
	other := container{image: m, user: "12345:0", secrets: t.TempDir()}
	token := filepath.Join(other.secrets, "token")
	if err := os.WriteFile(token, []byte(own.run(t, "token")), 0o440); err != nil { // as the volume of a Secret
		t.Fatal(err)
	}
	other.env = []string{"NEXAR_CLUSTER_TOKEN_FILE=/run/secrets/token", "NEXAR_SEEDS=" + address}
	seed, log := other.start(t.Context(), t, "seed", "--world", "3", "--listen", address, "--state-dir", "/data/seed")
	var ranks []*exec.Cmd
	var outputs []*testlog.Buffer
	for range 3 {
		rank, out := other.start(t.Context(), t, "bench", "--op", "all_reduce", "--iters", "3", "--max", "64")
		ranks, outputs = append(ranks, rank), append(outputs, out)
	}
	for i, rank := range append(ranks, seed) {
		if err := rank.Wait(); err != nil {
			t.Errorf("process %d of the world: %v\n%s", i, err, append(outputs, log)[i].String())
		}
	}
}
