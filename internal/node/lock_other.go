//go:build !unix

package node

import "os"

// Lock does nothing: this system does not tell which process has locked a file.
func Lock(*os.File) (holder int) { return 0 }
