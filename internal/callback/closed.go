package callback

// Closed returns c, or a closed channel if c is nil: a method of a zero value
// returns it, so that a caller's receive does not block for ever.
func Closed(c chan struct{}) <-chan struct{} {
	if c == nil {
		c = make(chan struct{})
		close(c)
	}
	return c
}
