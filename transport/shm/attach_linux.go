package shm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// areaName returns the name of the file with the areas of a node. It identifies the node, and the
// number and length of its areas: the file of another node cannot be mistaken for it.
func areaName(cfg Config, node string) string {
	h := hello{kind: kindHello, areas: uint32(cfg.Areas), area: uint64(cfg.AreaSize), cluster: cfg.Cluster, to: node}
	sum := sha256.Sum256(h.append(nil))
	return "nexar-area-" + hex.EncodeToString(sum[:16])
}

// areaKey returns the key of the areas in a file of a process.
func areaKey(pid, fd int) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], uint32(pid))
	binary.BigEndian.PutUint32(b[4:], uint32(fd))
	return binary.BigEndian.Uint64(b[:])
}

// Areas implements transport.HostMemory.
func (e *endpoint) Areas() (count, size int) {
	if e.areas.size == 0 {
		return 0, 0
	}
	return e.areas.count, e.areas.each
}

// AreasKey implements transport.HostMemory. It has the process and the file descriptor of the areas.
func (e *endpoint) AreasKey() uint64 { return e.areas.key }

// AttachAreas implements transport.HostMemory. It opens the file of the areas in /proc.
func (e *endpoint) AttachAreas(peer string, key uint64) (transport.Areas, error) {
	pid, fd := int32(key>>32), int32(key)
	ref, err := e.attach(peer, pid, fd)
	if err != nil {
		return nil, fmt.Errorf("shm: attach the areas of %q, file %d of process %d: %w", peer, fd, pid, err)
	}
	return ref, nil
}

func (e *endpoint) attach(peer string, pid, fd int32) (*areaRef, error) {
	if e.areas.size == 0 {
		return nil, errors.New("this node has no areas")
	}
	if pid <= 0 || fd < 0 {
		return nil, errors.New("there is no such file")
	}
	path, want := fmt.Sprintf("/proc/%d/fd/%d", pid, fd), areaName(e.cfg, peer)
	// To open another file, such as a device, could have an effect.
	if err := checkAreaName(path, want); err != nil {
		return nil, err
	}
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, notSeen(err)
	}
	defer unix.Close(file)
	// The process may have ended, and another one may have its number.
	if err := checkAreaName(fmt.Sprintf("/proc/self/fd/%d", file), want); err != nil {
		return nil, err
	}
	if err := checkOwner(file); err != nil {
		return nil, err
	}
	return e.areas.mapPeer(file)
}

// checkAreaName requires that a path in /proc is a memfd with a name.
func checkAreaName(path, want string) error {
	got, err := os.Readlink(path)
	if err != nil {
		return notSeen(err)
	}
	if got != "/memfd:"+want+" (deleted)" {
		return fmt.Errorf("%w: it is %s, not the areas of the node: its process has ended, or has another PID namespace",
			transport.ErrNotLocal, wire.Escape(got))
	}
	return nil
}

// notSeen returns the error for a file in /proc that this process cannot see.
func notSeen(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", transport.ErrNotLocal, err)
	}
	return err
}

// checkOwner refuses the files of other users: root can open them all.
func checkOwner(file int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(file, &stat); err != nil {
		return fmt.Errorf("fstat of the areas: %w", err)
	}
	if us := os.Geteuid(); stat.Uid != uint32(us) {
		return fmt.Errorf("%w: the areas belong to user %d, this process to user %d", transport.ErrIdentity, stat.Uid, us)
	}
	return nil
}
