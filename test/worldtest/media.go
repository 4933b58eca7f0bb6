package worldtest

// Media returns the media over which a test runs: all of them, or the last if [Brief]. So the last should be the one with the most
// goroutines. TestConformance of test/conformance runs over all media even then.
func Media(all ...Medium) []Medium {
	if Brief() {
		return all[len(all)-1:]
	}
	return all
}
