package pki

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

func TestOpenAuthorityKeepsTheCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	first, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.Cluster() != second.Cluster() || !bytes.Equal(first.Certificate(), second.Certificate()) {
		t.Error("opened again, the directory holds another CA")
	}
	// Both are the same CA: each accepts the certificates of the other.
	key := newKey(t)
	cert, _, err := second.Sign(request(t, key), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewIdentity(key, cert, first.Certificate()); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory holds %v (%v), want one file", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dir, authorityFile)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestOpenAuthorityByManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	clusters := make([]string, 8)
	var wg sync.WaitGroup
	for i := range clusters {
		wg.Go(func() {
			a, err := OpenAuthority(dir)
			if err != nil {
				t.Error(err)
				return
			}
			clusters[i] = a.Cluster()
		})
	}
	wg.Wait()
	for _, c := range clusters {
		if c != clusters[0] {
			t.Fatalf("seeds that open one directory at once got different CAs: %v", clusters)
		}
	}
}

func TestOpenAuthorityRefusesDamage(t *testing.T) {
	a := newAuthority(t)
	good, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, goodKey := pem.Decode(good)
	otherCert, _ := pem.Decode(other)
	key := newKey(t)
	node, _, err := a.Sign(request(t, key), 0)
	if err != nil {
		t.Fatal(err)
	}
	nodeFile, err := (&Authority{key: key.private, cert: mustParse(t, node)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]byte{
		"empty":           {},
		"garbage":         []byte("not a CA"),
		"half":            good[:len(good)/2],
		"no key":          good[:len(good)-len(goodKey)],
		"no certificate":  goodKey,
		"key of another":  append(pem.EncodeToMemory(otherCert), goodKey...),
		"more than a CA":  append(bytes.Clone(good), "more"...),
		"a node, no CA":   nodeFile,
		"much too long":   append(bytes.Clone(good), bytes.Repeat([]byte("\n"), authorityBytesMax)...),
		"wrong key block": bytes.Replace(good, []byte("BEGIN PRIVATE"), []byte("BEGIN PRIVITE"), 1),
	}
	for name, text := range tests {
		dir := t.TempDir()
		path := filepath.Join(dir, authorityFile)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAuthority(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names %s", name, err, path)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
			t.Errorf("%s: the damaged file was changed (%v)", name, err)
		}
	}
}

func TestOpenAuthorityRefusesFilesThatOthersCanRead(t *testing.T) {
	require.Have(t, "modes", runtime.GOOS != "windows", "Windows has no file modes")
	dir := t.TempDir()
	if _, err := OpenAuthority(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, authorityFile)
	for mode, ok := range map[os.FileMode]bool{0o644: false, 0o620: false, 0o602: false, 0o600: true, 0o400: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := OpenAuthority(dir)
		if (err == nil) != ok {
			t.Errorf("mode %04o: error %v, want one: %v", mode, err, !ok)
		}
	}
}

func TestParseAuthorityExpired(t *testing.T) {
	text, err := newAuthority(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, err = parseAuthority(text, time.Now().Add(2*authorityLife))
	if err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("error %v, want that it has expired", err)
	}
}
