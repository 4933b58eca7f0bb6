//go:build !linux

package tcp

// A locator is only used on Linux.
type locator struct{}

func (locator) init() {}
