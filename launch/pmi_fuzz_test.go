package launch

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func FuzzPMI1(f *testing.F) {
	for _, s := range []string{
		"cmd=get_result rc=0 msg=success value=a=b\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
		"cmd=barrier_out rc=1 msg=a\\ b\\\\\n", "cmd=\n", "cmd= cmd=x\n", "\n", "cmd=get_result", "cmd=x\\\n", "\x00\n", strings.Repeat("x", 9000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzPMI(t, data, 1) })
}

func FuzzPMI2(f *testing.F) {
	for _, s := range []string{
		"    28cmd=kvs-fence-response;rc=0;", "28    cmd=kvs-fence-response;rc=0;", "000005cmd=;", "     0", "     4cmd=", "999999cmd=",
		"    -5cmd=;", "0000\xd5\x9f", "    50cmd=kvs-get-response;rc=0;found=TRUE;value=a=b+/1;", "     9cmd=a;;;;", "    99cmd=x;", "  8186cmd=",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzPMI(t, data, 2) })
}

// fuzzPMI decodes all messages of data. The result must not depend on how the bytes arrive. An accepted message is within the limits, has a
// command, and the same message results if its fields are encoded again.
func fuzzPMI(t *testing.T, data []byte, version int) {
	whole := bufio.NewReaderSize(bytes.NewReader(data), maxPMIMessage)
	single := bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(data)), maxPMIMessage)
	for {
		m, err := decode(whole, version)
		same, errSame := decode(single, version)
		if (err == nil) != (errSame == nil) || err == nil && m.raw != same.raw {
			t.Fatalf("%q (%v), byte by byte %q (%v)", m.raw, err, same.raw, errSame)
		}
		if len(m.raw) > maxPMIMessage || len(excerpt(m.raw)) > 4*maxExcerpt+40 || len(m.fields) > maxPMIFields {
			t.Fatalf("a message of %d bytes and %d fields, excerpt %s", len(m.raw), len(m.fields), excerpt(m.raw))
		}
		if err != nil {
			if len(err.Error()) > 1000 || printable(err.Error()) != nil {
				t.Fatalf("error %q", err)
			}
			if errors.Is(err, io.EOF) && m.raw != "" {
				t.Fatalf("the end after %q", m.raw)
			}
			return
		}
		if !strings.Contains(m.raw, "cmd=") {
			t.Fatalf("accepted %q", m.raw)
		}
		again := request{cmd: m.cmd}
		for _, f := range m.fields[1:] {
			if checkPMI(f.value) != nil && f.value != "" || checkPMI(f.name) != nil && f.name != "" {
				return
			}
			again.fields = append(again.fields, f)
		}
		if checkPMI(m.cmd) != nil && m.cmd != "" {
			return
		}
		copied, err := decode(bufio.NewReaderSize(strings.NewReader(again.encode(version)), maxPMIMessage), version)
		if err != nil || copied.cmd != m.cmd || len(copied.fields) != len(m.fields) {
			t.Fatalf("%q became %q: %v", m.raw, copied.raw, err)
		}
		for i := range m.fields {
			if m.fields[i] != copied.fields[i] {
				t.Fatalf("%q became %q", m.fields[i], copied.fields[i])
			}
		}
	}
}
