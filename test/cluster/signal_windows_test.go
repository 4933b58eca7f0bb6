package cluster

import "os"

// quit ends a process: there is nothing gentler.
var quit = os.Kill
