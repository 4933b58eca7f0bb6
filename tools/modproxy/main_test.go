package main

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tree is the root of the repository.
const tree = "../.."

// programs is the module of a user: one program with a small package of nexar, one with the API.
var programs = map[string]string{
	"go.mod": "module example.com/user\n\ngo 1.26\n",
	"small/main.go": `package main

import (
	"fmt"

	"github.com/nexar-go/nexar/simulate"
)

func main() { fmt.Println(simulate.Collectives()) }
`,
	"api/main.go": `package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nexar-go/nexar"
)

func main() {
	comms, err := nexar.Local(context.Background(), 1, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sum, err := nexar.AllReduceOne(context.Background(), comms[0], 7, nexar.Sum)
	fmt.Println(sum, err)
}
`,
}

// A user has a module of their own, and gets all others from a proxy.
type user struct {
	t    *testing.T
	dir  string
	bin  string
	env  []string
	want string // the version of nexar
}

// run runs a command in the module of the user and returns its output.
func (u *user) run(name string, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), name, args...)
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// newUser publishes the modules of the tree to a user, whose module cache is empty. The modules of others are those in the
// cache of this machine, or else from its proxy.
func newUser(t *testing.T) *user {
	t.Helper()
	dir := t.TempDir()
	u := &user{t: t, dir: filepath.Join(dir, "user"), bin: filepath.Join(dir, "bin")}
	for name, text := range programs {
		name = filepath.Join(u.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	proxy := filepath.Join(dir, "proxy")
	version, err := write(tree, proxy)
	if err != nil {
		t.Fatal(err)
	}
	u.want = version
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY", "GOFLAGS").Output()
	if err != nil {
		t.Fatal(err)
	}
	settings := strings.Split(string(out), "\n")
	cached := filepath.Join(settings[0], "cache", "download")
	u.env = append(os.Environ(), "GOWORK=", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOBIN="+u.bin, "GOMODCACHE="+filepath.Join(dir, "cache"),
		"GOPROXY="+fileURL(proxy)+","+fileURL(cached)+","+cmp.Or(settings[1], "off"),
		"GOFLAGS="+settings[2]+" -mod=mod -modcacherw") // The default mode of the cache prevents its removal.
	return u
}

func fileURL(path string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(path), "/")
}

// TestPublished gets the modules of the tree as a user will from a proxy: all packages have their dependencies and embedded
// files, and a program runs. With PUBLISHED=all ("make published") it also installs and runs the commands.
func TestPublished(t *testing.T) {
	u := newUser(t)
	at := func(packages ...string) (list []string) {
		for _, p := range packages {
			list = append(list, nexar+p+"@"+u.want)
		}
		return list
	}
	u.run("go", append([]string{"get"}, at("", "/hw", "/bench", "/examples/transport_unix")...)...)
	packages := u.run("go", "list", "-deps", nexar+"/...")
	for _, p := range []string{"", "/cmd/nexar", "/hw/device/nccl", "/bench/cmd/peers", "/examples/transport_unix"} {
		if !strings.Contains("\n"+packages, "\n"+nexar+p+"\n") {
			t.Errorf("the user has no package %s%s, only\n%s", nexar, p, packages)
		}
	}
	if out := u.run("go", "run", "./small"); !strings.Contains(out, "all_reduce") {
		t.Errorf("a program with package simulate prints %q, want the names of collectives", out)
	}
	if os.Getenv("PUBLISHED") != "all" {
		return
	}
	if out := u.run("go", "run", "./api"); out != "7 <nil>\n" {
		t.Errorf("a program with package nexar prints %q, want the sum 7", out)
	}
	u.run("go", append([]string{"install"}, at("/cmd/nexar", "/examples/allreduce")...)...)
	for _, p := range at("/hw/cmd/nexar-hw", "/examples/transport_unix", "/bench/cmd/peers") {
		u.run("go", "install", p)
	}
	for _, name := range []string{"nexar", "nexar-hw"} {
		if out := u.run(filepath.Join(u.bin, name), "version"); !strings.HasPrefix(out, "nexar "+u.want+", ") {
			t.Errorf("%s version prints %q, want %s", name, out, u.want)
		}
	}
	if out := u.run(filepath.Join(u.bin, "nexar"), "run", "-n", "2", "--", filepath.Join(u.bin, "allreduce")); !strings.Contains(out, "rank 1 of 2") {
		t.Errorf("the example allreduce prints %q", out)
	}
}

// TestVersionIsInChangelog: the modules require the newest version of the changelog.
func TestVersionIsInChangelog(t *testing.T) {
	version, err := write(tree, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	changelog, err := os.ReadFile(filepath.Join(tree, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^## .*(v\d+\.\d+\.\d+)`).FindSubmatch(changelog); m == nil || string(m[1]) != version {
		t.Errorf("the modules require %s, the newest version of CHANGELOG.md is %q: make them equal", version, m)
	}
}

// TestWriteRefuses: modules that a user would not get as they are in the tree are not written.
func TestWriteRefuses(t *testing.T) {
	const require = "require " + nexar + " v1.2.3\n"
	for name, c := range map[string]struct{ a, b, want string }{
		"replace":  {require, require + "replace " + nexar + " => ..\n", "replaces " + nexar},
		"versions": {require, "require " + nexar + " v1.2.4\n", "want one version"},
		"none":     {"", "", "no module of"},
		"equal":    {require, require, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range map[string]string{
				"go.work": "go 1.26\nuse (\n.\n./a\n./b\n)\n", "go.mod": "module " + nexar + "\n",
				"a/go.mod": "module " + nexar + "/a\n" + c.a, "b/go.mod": "module " + nexar + "/b\n" + c.b,
			} {
				file = filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			version, err := write(root, t.TempDir())
			if c.want == "" && (err != nil || version != "v1.2.3") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("version %q, error %v, want %q", version, err, c.want)
			}
		})
	}
}
