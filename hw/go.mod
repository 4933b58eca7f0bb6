module github.com/nexar-go/nexar/hw

go 1.26.0

replace github.com/nexar-go/nexar => ..

require (
	github.com/ebitengine/purego v0.11.3
	github.com/nexar-go/nexar v0.0.0
)

require (
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
