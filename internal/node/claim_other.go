//go:build !unix

package node

import "os"

// Claim does nothing: this system does not tell which process has locked a file.
func Claim(*os.File) (holder int) { return 0 }
