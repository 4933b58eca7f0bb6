//go:build !unix

package pki

import "io/fs"

func accessOf(fs.FileInfo) (access, bool) { return access{}, false }
