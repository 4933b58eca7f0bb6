//go:build !unix

package resources

// read returns no limits: this system has none of these kinds.
func read(string) limits {
	return limits{files: unlimited, userThreads: unlimited, pids: unlimited, memory: unlimited}
}
