package callback

// Closed returns c, or a closed channel if c is nil, so that receiving from the channel of a
// zero value does not block forever.
func Closed(c chan struct{}) <-chan struct{} {
	if c == nil {
		c = make(chan struct{})
		close(c)
	}
	return c
}
