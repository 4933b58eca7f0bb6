// Package admission bounds the incoming connections whose peer has proved nothing
// yet, and shares them out among the sources they come from.
//
// A [Table] decides which connection is admitted, which one is evicted for it, and
// which one is refused. It is pure: it has no lock and no clock, and its results
// depend on its parameters alone. A [Gate] is a Table for several goroutines, which
// also closes what the Table evicts and waits where waiting is worth it.
//
// Transports ask a Gate before they spend anything on a connection, above all
// before its TLS handshake, and tell it when the peer has proved what it is.
package admission
