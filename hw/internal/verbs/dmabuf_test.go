package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// TestDMABufABI: ibv_reg_dmabuf_mr has the arguments that RegisterDMABuf passes.
func TestDMABufABI(t *testing.T) {
	_, err := os.Stat("/usr/include/infiniband/verbs.h")
	require.Have(t, "verbs-headers", err == nil, "the header infiniband/verbs.h is missing (package libibverbs-dev)")
	source := filepath.Join(t.TempDir(), "abi.c")
	text := `#include <infiniband/verbs.h>
struct ibv_mr *same(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
_Static_assert(__builtin_types_compatible_p(__typeof__(same), __typeof__(ibv_reg_dmabuf_mr)), "other arguments");
_Static_assert(sizeof(size_t) == 8, "not 64 bits");
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-fsyntax-only", source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
