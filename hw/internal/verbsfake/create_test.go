package verbsfake_test

import (
	"errors"
	"syscall"
	"testing"
)

// TestFailedQueueLeavesNothing: a completion queue that cannot be made leaves no object and no open file.
func TestFailedQueueLeavesNothing(t *testing.T) {
	fake, d := open(t)
	defer fake.Error("", 0)
	q, err := d.NewCQ(16) // The poller of the runtime opens its files with the first one.
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
	for _, call := range []string{"ibv_create_comp_channel", "ibv_create_cq"} {
		files, objects := openFiles(t), fake.Live()
		fake.Error(call, syscall.EMFILE)
		q, err := d.NewCQ(16)
		if q != nil || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%s fails: queue %v, error %v; want none, and EMFILE", call, q, err)
		}
		if f, o := openFiles(t), fake.Live(); f != files || o != objects {
			t.Errorf("%s fails: %d open files and %d objects, and before %d and %d", call, f, o, files, objects)
		}
	}
}

// TestNoDescriptorLeft: without a free descriptor a completion queue cannot be made, and the error says so.
func TestNoDescriptorLeft(t *testing.T) {
	fake, d := open(t)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	objects := fake.Live()
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	// The channel takes the last two descriptors, and the duplicate finds none; then the channel finds none.
	for left := uint64(2); ; left-- {
		next, err := syscall.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Close(next)
		lower := limit
		lower.Cur = uint64(next) + left
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
			t.Fatal(err)
		}
		q, err := d.NewCQ(16)
		if q != nil || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("with %d descriptors: queue %v, error %v; want none, and EMFILE", left, q, err)
		}
		if n := fake.Live(); n != objects {
			t.Errorf("with %d descriptors: %d objects, and %d before", left, n, objects)
		}
		if left == 0 {
			break
		}
	}
}
