module github.com/nexar-go/nexar/examples/transport_unix

go 1.26.0

require github.com/nexar-go/nexar v0.1.0

require (
	github.com/caarlos0/env/v11 v11.4.2 // indirect
	github.com/quic-go/quic-go v0.65.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
