package launch

import "errors"

// Guard is not needed here: the system ends a job with the process that holds
// it.
func Guard(GuardConfig) (status int, err error) { return 0, errors.ErrUnsupported }

// TakeLifeline returns a Lifeline that is never cut.
func TakeLifeline() *Lifeline { return new(Lifeline) }
