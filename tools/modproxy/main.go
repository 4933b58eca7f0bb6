// Command modproxy writes the modules of the working tree as a file-system module proxy, in the version that they require of
// each other:
//
//	modproxy -C .. DIRECTORY
//
// It prints the version. With GOPROXY=file://DIRECTORY the go command gets the modules as a user will after the release.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// nexar is the module at the root of the tree.
const nexar = "github.com/nexar-go/nexar"

func main() {
	root := flag.String("C", ".", "root of the tree")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: modproxy [-C ROOT] DIRECTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	version, err := write(*root, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
	fmt.Println(version)
}

// write writes the module at root, and the others of go.work that require it, below dir. It returns their version.
func write(root, dir string) (version string, err error) {
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return "", err
	}
	var folders []string
	for _, use := range work.Use {
		required, err := requirement(filepath.Join(root, use.Path, "go.mod"))
		switch {
		case err != nil:
			return "", err
		case required == "":
			continue // the root, or a tool that is not published
		case version != "" && required != version:
			return "", fmt.Errorf("%s requires %s %s, another module requires %s: want one version", use.Path, nexar, required, version)
		}
		version = required
		folders = append(folders, use.Path)
	}
	if version == "" {
		return "", fmt.Errorf("no module of %s requires %s: want one, as its version is that of all modules", name, nexar)
	}
	for _, folder := range append(folders, ".") {
		if err := writeModule(root, filepath.ToSlash(filepath.Clean(folder)), version, dir); err != nil {
			return "", fmt.Errorf("module in %s: %w", folder, err)
		}
	}
	return version, nil
}

// requirement returns the version of nexar that a go.mod file requires, "" if none. Users ignore replace directives of a
// module that they require, and "go install" refuses a module that has any.
func requirement(name string) (version string, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	mod, err := modfile.Parse(name, text, nil)
	if err != nil {
		return "", err
	}
	if len(mod.Replace) > 0 {
		return "", fmt.Errorf("%s replaces %s: put the directive into go.work, as users get no replaced modules", name, mod.Replace[0].Old.Path)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == nexar {
			version = r.Mod.Version
		}
	}
	return version, nil
}

// writeModule writes the module in a folder of root: the list of its versions, and the information, go.mod and archive of
// this one.
func writeModule(root, folder, version, dir string) error {
	mod := module.Version{Path: strings.TrimSuffix(nexar+"/"+folder, "/."), Version: version}
	escaped, err := module.EscapePath(mod.Path)
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	goMod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(
		pack(archive, mod, filepath.Join(root, folder)),
		archive.Close(),
		os.WriteFile(filepath.Join(dir, version+".mod"), goMod, 0o644),
		os.WriteFile(filepath.Join(dir, version+".info"), fmt.Appendf(nil, "{\"Version\":%q}\n", version), 0o644),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
	)
}

// pack writes the archive of the module in dir: the files that git does not ignore or, without git, all files.
func pack(w io.Writer, mod module.Version, dir string) error {
	list, err := exec.Command("git", "-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return zip.CreateFromDir(w, mod, dir)
	}
	var files []zip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		f := file{name, filepath.Join(dir, filepath.FromSlash(name))}
		if _, err := f.Lstat(); !errors.Is(err, fs.ErrNotExist) { // removed, and still tracked
			files = append(files, f)
		}
	}
	return zip.Create(w, mod, files)
}

// A file is a file of a module.
type file struct{ path, at string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.at) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.at) }
