//go:build !linux

package campaign

// orphans does nothing: this platform has no child subreapers.
type orphans struct{}

func watchOrphans() orphans { return orphans{} }

func (orphans) end() {}
