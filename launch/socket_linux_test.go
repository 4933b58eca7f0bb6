package launch_test

import "testing"

func needSockets(*testing.T) {}
