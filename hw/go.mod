module github.com/nexar-go/nexar/hw

go 1.26.0

replace github.com/nexar-go/nexar => ..

require github.com/ebitengine/purego v0.11.3
