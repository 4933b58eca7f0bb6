//go:build !linux

package tcp

// A locator is nothing where no kernel tells which processor has served a socket.
type locator struct{}

func (locator) init() {}
