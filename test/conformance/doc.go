// Package conformance tests every collective, message and communicator over every transport, by the public API.
package conformance
